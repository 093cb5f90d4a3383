"""What is made of an archive's members: pure, without an archive or a disk."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.tools.unpack.plan import MemberKind, PlannedLink, UnpackMember, UnpackPlan, make_plan

FILE, FOLDER, SYMBOLIC, HARD = MemberKind.FILE, MemberKind.FOLDER, MemberKind.SYMBOLIC_LINK, MemberKind.HARD_LINK


def plan_of(*members: tuple[str, MemberKind] | tuple[str, MemberKind, str]) -> UnpackPlan:
    made = [UnpackMember(name, kind, 1 if kind is FILE else 0, *link or [""]) for name, kind, *link in members]
    return make_plan(len(made), made.__getitem__)


def paths(plan: UnpackPlan) -> list[bytes]:
    return [plan.path(number) for number in plan.files]


def test_members_keep_their_order():
    plan = plan_of(("b", FILE), ("d/", FOLDER), ("a", FILE), ("d/c", FILE))
    assert (paths(plan), list(plan.files), plan.folders) == ([b"b", b"a", b"d/c"], [0, 2, 3], [1])


def test_of_one_path_the_last_counts_however_it_is_spelt():
    plan = plan_of(("a", FILE), ("./a", FILE), ("b", FILE), ("//a", FILE), ("c", FILE), ("c", FOLDER))
    assert (list(plan.files), plan.folders, plan.replaced) == ([2, 3], [5], ["a", "./a", "c"])


def test_a_member_that_is_refused_replaces_nothing():
    plan = plan_of(("a", FILE), ("a", SYMBOLIC, "/etc/passwd"))
    assert (list(plan.files), [refusal.name for refusal in plan.refused]) == ([0], ["a"])


def test_symbolic_links_are_written_as_they_lead():
    plan = plan_of(("d/a", SYMBOLIC, "../b//c"), ("e", SYMBOLIC, "x/../y"))
    assert plan.symbolic_links == [PlannedLink(b"d/a", b"../b/c", 0), PlannedLink(b"e", b"y", 1)]


def test_hard_links_name_the_file_that_they_lead_to():
    plan = plan_of(("a", FILE), ("b", HARD, "./a"), ("c", HARD, "b"))
    assert plan.hard_links == [PlannedLink(b"b", b"a", 1), PlannedLink(b"c", b"a", 2)]


def test_a_hard_link_to_a_file_that_is_replaced_is_a_copy():
    plan = plan_of(("a", FILE), ("b", HARD, "a"), ("a", FILE), ("c", HARD, "a"))
    assert (plan.copies, plan.hard_links) == ([(b"b", 0)], [PlannedLink(b"c", b"a", 3)])


def test_a_hard_link_to_a_symbolic_one_is_that_from_where_it_lies():
    plan = plan_of(("d/l", SYMBOLIC, "../x"), ("d/m", HARD, "d/l"), ("n", HARD, "d/l"))
    assert [(link.path, link.target, link.number) for link in plan.symbolic_links] == [
        (b"d/l", b"../x", 0),
        (b"d/m", b"../x", 0),
    ]
    assert [refusal.name for refusal in plan.refused] == ["n"]


def test_a_hard_link_to_a_file_that_is_not_made_is_refused():
    plan = plan_of(("l", SYMBOLIC, "d"), ("l/a", FILE), ("b", HARD, "l/a"))
    assert [refusal.name for refusal in plan.refused] == ["l/a", "b"]


def test_hard_links_through_very_many_others():
    members = [("0", FILE), *((f"{number}", HARD, f"{number - 1}") for number in range(1, 60))]
    plan = plan_of(*members)
    assert {link.target for link in plan.hard_links} == {b"0"}
    assert (len(plan.hard_links), plan.refused) == (59, [])


def test_deep_folders():
    deep = "d/" * 2000
    plan = plan_of((deep + "a", FILE), ("d/d", FILE), (deep + "b", FILE))
    assert list(plan.files) == [1]
    assert [refusal.why for refusal in plan.refused] == ["it lies below 'd/d', which is a file in the archive"] * 2


NAMES = st.lists(st.sampled_from("ab."), min_size=1, max_size=4).map("/".join)
MEMBERS = st.lists(st.tuples(NAMES, st.sampled_from([FILE, FOLDER, SYMBOLIC, HARD]), NAMES), max_size=12)


@given(MEMBERS)
def test_nothing_is_made_twice_nor_below_what_is_no_folder(members):
    plan = plan_of(*members)
    links = plan.symbolic_links + plan.hard_links
    leaves = [*paths(plan), *(path for path, _ in plan.copies), *(link.path for link in links)]
    folders = [plan.path(number) for number in plan.folders]
    assert len(set(leaves + folders)) == len(leaves + folders)
    assert not any(path.startswith(leaf + b"/") for path in leaves + folders for leaf in leaves)
    assert {link.target for link in plan.hard_links} <= set(paths(plan))
    told = len(leaves) + len(folders) + len(plan.replaced) + len(plan.refused)
    assert told == len(members)
