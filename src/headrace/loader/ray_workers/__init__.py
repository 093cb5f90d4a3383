"""Steps of a loader's plan made by Ray actors on other machines."""
