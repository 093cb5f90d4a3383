"""After a measured run every file is as it was, whichever way the command has changed it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from file_trees import Tree, project, tree
from undone_runs import put_back, undone_run

from headrace.doctor.attach.command import CommandResult

CHANGES = {
    "a new file": "open('new.txt', 'w').write('x')",
    "a new file, exclusively": "open('new.txt', 'x').write('x')",
    "written anew": "open('notes.txt', 'w').write('x')",
    "appended": "open('train.log', 'a').write('epoch 3')",
    "appended, then written anew": "open('train.log', 'a').write('3'); open('train.log', 'w').write('4')",
    "appended, then removed": "open('train.log', 'a').write('3'); os.remove('train.log')",
    "appended, then renamed": "open('train.log', 'a').write('3'); os.rename('train.log', 'train.1')",
    "in place, at the same size and time": """
        s = os.stat('table.bin')
        with open('table.bin', 'r+b') as f:
            f.write(b'other')
        os.utime('table.bin', ns=(s.st_atime_ns, s.st_mtime_ns))""",
    "mapped": "import mmap; f = open('table.bin', 'r+b'); mmap.mmap(f.fileno(), 0)[3:6] = b'abc'",
    "by flags": "os.write(os.open('notes.txt', os.O_WRONLY | os.O_CREAT | os.O_TRUNC), b'x')",
    "in an open folder": """
        folder = os.open('runs', os.O_RDONLY)
        os.mkdir('third', dir_fd=folder)
        os.rename('second/events', 'third/events', src_dir_fd=folder, dst_dir_fd=folder)
        os.unlink('first/deep/more', dir_fd=folder)""",
    "by flags, beside an open folder with a file of that name": """
        folder = os.open('runs/first', os.O_RDONLY)
        os.write(os.open('events', os.O_WRONLY | os.O_CREAT | os.O_TRUNC), b'x')
        assert open('runs/first/events').read() == 'one'""",
    "removed": "os.remove('notes.txt'); os.unlink('last.ckpt')",
    "removed and made again": "os.remove('notes.txt'); open('notes.txt', 'w').write('x')",
    "removed, and a folder in its place": "os.remove('notes.txt'); os.mkdir('notes.txt'); open('notes.txt/b', 'w')",
    "renamed": "os.rename('notes.txt', 'other.txt')",
    "renamed, then written in place": "os.rename('notes.txt', 'o'); open('o', 'r+').write('x')",
    "renamed over another": "os.replace('notes.txt', 'best.ckpt')",
    "a replacement that failed, then written anew": """
        try:
            os.replace('missing', 'last.ckpt')
        except FileNotFoundError:
            open('last.ckpt', 'w').write('x')""",
    "moved from another file system": """
        import shutil, tempfile
        with tempfile.NamedTemporaryFile('w', dir='/dev/shm', delete=False) as new:
            new.write('other weights')
        shutil.move(new.name, 'last.ckpt')""",
    "saved in one step, thrice": """
        for n in range(3):
            open('t', 'w').write(str(n)); os.replace('t', 'last.ckpt')""",
    "rotated": "os.replace('last.ckpt', 'best.ckpt'); open('last.ckpt', 'w').write('x')",
    "swapped": "os.rename('last.ckpt', 't'); os.rename('best.ckpt', 'last.ckpt'); os.rename('t', 'best.ckpt')",
    "a folder renamed": "os.rename('runs/first', 'runs/third'); open('runs/third/events', 'w').write('x')",
    "a folder renamed and made again": "os.rename('runs', 'old'); os.mkdir('runs'); open('runs/n', 'w').write('x')",
    "a folder removed": "import shutil; shutil.rmtree('runs')",
    "a folder removed and made again": """
        import shutil
        shutil.rmtree('runs'); os.makedirs('runs/first/deep'); open('runs/first/events', 'w').write('x')""",
    "new folders": "os.makedirs('a/b/c'); open('a/b/c/d', 'w').write('x'); open('a/e', 'w').write('x')",
    "a new folder renamed": "os.mkdir('a'); open('a/b', 'w').write('x'); os.rename('a', 'c')",
    "a new folder over an empty one": "os.mkdir('e'); os.mkdir('a'); open('a/b', 'w').write('x'); os.replace('a', 'e')",
    "copied": "import shutil; shutil.copyfile('notes.txt', 'best.ckpt'); shutil.copytree('runs', 'copy')",
    "moved": "import shutil; shutil.move('notes.txt', 'runs/first'); shutil.move('runs/second', 'elsewhere')",
    "cut": "os.truncate('table.bin', 3)",
    "another mode": "os.chmod('run.sh', 0o600); os.chmod('runs', 0o700)",
    "another time": "os.utime('notes.txt'); os.utime('runs/first')",
    "a new link": "os.symlink('notes.txt', 'l'); open('l', 'w').write('x')",
    "a link replaced": "os.remove('link.txt'); os.symlink('best.ckpt', 'link.txt')",
    "a link replaced by a file": "os.remove('link.txt'); open('link.txt', 'w').write('x')",
    "a link replaced in one step": "os.symlink('runs/second', 't'); os.replace('t', 'latest')",
    "through a link": "open('link.txt', 'w').write('x'); open('latest/events', 'a').write('y')",
    "another name": "os.link('notes.txt', 'n'); open('n', 'r+').write('x')",
    "another folder": "os.chdir('runs/first'); open('events', 'w').write('x'); open('../../notes.txt', 'a').write('y')",
    "pathlib": """
        from pathlib import Path
        Path('notes.txt').write_text('x'); Path('runs/first/events').unlink(); Path('t').touch(); Path('d').mkdir()
        Path('best.ckpt').rename('b'); Path('last.ckpt').touch()""",
    "a database": """
        import sqlite3
        for name in ('new.db', 'runs/first/other.db'):
            base = sqlite3.connect(name)
            base.execute('create table t (a)'); base.execute('insert into t values (1)'); base.commit()""",
    "a log that turns": """
        import logging.handlers
        handler = logging.handlers.RotatingFileHandler('train.log', maxBytes=40, backupCount=2)
        for n in range(20):
            handler.emit(logging.makeLogRecord({'msg': 'epoch %d'  % n}))""",
    "comma-separated values": "import csv; csv.writer(open('metrics.csv', 'a')).writerows([[1, 2]] * 99)",
    "arrays": """
        import numpy
        numpy.save('a.npy', numpy.ones(3)); numpy.savez('a.npz', numpy.ones(3)); numpy.ones(9).tofile('table.bin')
        numpy.memmap('last.ckpt', dtype='u1', mode='r+')[2] = 9""",
    "odd names": r"""
        for name in ('a\nb', b'\xff\xfe', ' ', '\x1b[2J', '-rf', 'ü'):
            open(name, 'w').write('x')
        os.symlink('\nnowhere', 'l\n')""",
    "handles kept to the end": """
        global kept
        kept = [open('notes.txt', 'w'), open('train.log', 'a'), open('table.bin', 'r+b'), open('new', 'w')]
        kept[0].write('late')""",
    "forked": """
        if not os.fork():
            open('notes.txt', 'w').write('x'); open('new', 'w').write('y'); os._exit(0)
        os.wait(); open('notes.txt', 'a').write('z'); os.rename('new', 'newer')""",
    "started": """
        import subprocess
        source = "open('notes.txt', 'a').write('1'); open('n', 'w').write('2')"
        subprocess.run([sys.executable, '-c', source], check=True)
        open('notes.txt', 'w').write('3'); open('n', 'a').write('4'); os.replace('n', 'best.ckpt')
        subprocess.run([sys.executable, '-c', source], check=True)""",
    "several at once": """
        import subprocess
        source = '''
        import os, sys
        me = sys.argv[1]
        for n in range(20):
            open('train.log', 'a').write(me); open('notes.txt', 'w').write(me)
            open('t' + me, 'w').write(me); os.replace('t' + me, 'last.ckpt')
            os.makedirs('out/' + me, exist_ok=True); open('out/shared', 'a').write(me)
        '''
        import textwrap
        command = [sys.executable, '-c', textwrap.dedent(source)]
        running = [subprocess.Popen([*command, str(n)]) for n in range(4)]
        assert [one.wait() for one in running] == [0] * 4""",
    "threads": """
        import threading
        def work(me):
            for n in range(20):
                open('train.log', 'a').write(me); open('notes.txt', 'w').write(me)
                open('t' + me, 'w').write(me); os.replace('t' + me, 'last.ckpt')
        threads = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
        [thread.start() for thread in threads]; [thread.join() for thread in threads]""",
    "all descriptors closed": "os.closerange(3, 256); open('notes.txt', 'w').write('x'); open('n', 'w').write('y')",
}
LOOK = """
import json, os, sys, textwrap
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from file_trees import tree

def change(name, source):
    os.chdir(name)
    root, before = Path.cwd(), tree(Path.cwd())
    exec(textwrap.dedent(source), globals())
    assert tree(root) != before, "nothing was changed"

for number, source in enumerate(json.loads(Path(sys.argv[2]).read_text())):
    if not os.fork():
        change(str(number), source)
        sys.exit()
    if os.wait()[1]:
        print("failed:", source, file=sys.stderr)
"""


@dataclass(frozen=True)
class Changed:
    """What is there of each project, by the change, and what it should be."""

    now: dict[str, Tree]
    before: dict[str, Tree]
    ended: CommandResult


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Changed:
    """One run of all changes, each in a project and a process of its own."""
    folder = tmp_path_factory.mktemp("changes")
    root = folder / "all"
    projects = {change: project(root / str(number)) for number, change in enumerate(CHANGES)}
    before = {change: tree(path) for change, path in projects.items()}
    (folder / "changes.json").write_text(json.dumps(list(CHANGES.values())))
    command = [sys.executable, "-c", LOOK, str(Path(__file__).parents[1]), str(folder / "changes.json")]
    ended = undone_run(command, root, folder / "session")
    put_back(ended)
    return Changed(
        {change: tree(path) for change, path in projects.items()},
        before,
        ended,
    )


@pytest.mark.one_in(84)
@pytest.mark.parametrize("change", CHANGES)
def test_a_command_leaves_no_trace(change: str, changed: Changed) -> None:
    assert CHANGES[change] not in "\n".join(changed.ended.last_lines)
    assert changed.now[change] == changed.before[change]


def test_every_change_was_seen_and_undone(changed: Changed) -> None:
    ((code, text),) = put_back(changed.ended)
    assert (code, "moved to" in text) == ("put-back", False)
    assert changed.ended.last_lines == []
