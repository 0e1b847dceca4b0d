"""The program's commands and options, as it tells them, and where else they stand: the manual page, bash's completion."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running

tally = running.Tally()


def output(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                          timeout=30 * running.PATIENCE).stdout


def options(text):
    return set(re.findall(r"(?:^|[\s,\[|])(--[a-z][a-z-]+)", text)) - {"--usage", "--version"}


def section(page, command):
    """What the manual page says of one command: its section, from its heading to the next."""
    found = re.search(r"^\.S[SH] \"?(?:ferry )?%s\b.*?(?=^\.S[SH]|\Z)" % command, page, re.M | re.S | re.I)
    return found.group(0) if found else ""


commands = re.findall(r"^  ([a-z]+) +\S", output(running.FERRY, "help").split("Examples")[0], re.M)
tally.check({"run", "plan", "check", "help"} <= set(commands), "ferry help lists its commands", str(commands))
with open(os.path.join(running.ROOT, "docs", "ferry.1"), encoding="utf-8") as file:
    page = file.read().replace("\\-", "-")
completion = os.path.join(running.ROOT, "completions", "ferry.bash")
bash = shutil.which("bash")


def completed(*words, before=""):
    """What bash would offer for the last of these words, after the command line before it."""
    script = "%s. %s; COMP_WORDS=(%s); COMP_CWORD=%d; _ferry; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
        before, completion, " ".join("'%s'" % word for word in words), len(words) - 1)
    return set(output(bash, "-c", script).split())


def check_files():
    """Files are offered whatever the shell's options are; a topology's names are those of its plan."""
    with tempfile.TemporaryDirectory(prefix="ferry-words-") as folder:
        for name in ("one.yaml", "two.yml", "notes.txt"):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write("ferry: 1\nname: one\nmesh: {pipeline: 2}\ngroups: [{name: spare, members: [1]}]\n")
        os.mkdir(os.path.join(folder, "runs"))
        inside = "cd %s; shopt -%%s extglob; " % folder
        for option in "us":
            told = completed("ferry", "run", "", before=inside % option)
            tally.check(told == {"one.yaml", "two.yml", "runs"},
                        "topologies and folders are completed, extglob -%s" % option, str(told))
        told = completed("ferry", "plan", "--model", "=", "no", before=inside % "u")
        tally.check(told == {"notes.txt"}, "any file is completed behind --model=", str(told))
        told = completed("ferry", "doctor", "", before=inside % "u")
        tally.check(told == {"runs"}, "folders are completed for ferry doctor", str(told))
        told = completed(running.FERRY, "bench", "one.yaml", "--target", "", before=inside % "u")
        tally.check(told == {"world/0", "pipeline/0", "stage/0", "stage/1", "spare", "forward/0-1"},
                    "groups and routes are completed behind --target", str(told))


def check_keys():
    """Behind --set stand the keys that docs/topology.md has a row for, but those of lists."""
    told = set(output(running.FERRY, "help", "keys").split())
    rows, sections, values, path = set(), set(), set(), ""  # a section is a key only where a value may stand for it
    with open(os.path.join(running.ROOT, "docs", "topology.md"), encoding="utf-8") as file:
        for line in file:
            heading, row = re.match(r"## `(.+?)(\[\])?`$", line), re.match(r"\| `(\w+)` \| ", line)
            if heading:
                path = heading.group(1)
                sections.add(path)
                inside = path + (heading.group(2) or "") + "."
            elif line.startswith("The value is "):
                values.add(path)
            elif row:
                rows.add((inside if path else "") + row.group(1))
    expected = rows - sections | values
    tally.check(told == expected and {"mesh.tensor", "groups[].name"} <= told, "ferry help keys lists every key",
                str(told ^ expected))
    if bash:
        offered = completed(running.FERRY, "plan", "one.yaml", "--set", "")
        tally.check(offered == {key + "=" for key in told if "[" not in key}, "the keys are completed behind --set",
                    str(offered))
        offered = completed(running.FERRY, "run", "-s", "communication.ti")
        tally.check(offered == {"communication.timeout="}, "a key is completed behind -s", str(offered))


check_keys()
for command in commands:
    tally.check(re.search(r"^\.B ferry %s\b" % command, page, re.M), "the manual page shows ferry " + command, page[:2000])
if bash:
    tally.check(completed("ferry", "") == set(commands) | {"--help", "--version"}, "the commands are completed",
                str(completed("ferry", "")))
    check_files()
for command in commands:
    if command == "help":
        continue
    told = options(output(running.FERRY, command, "--help"))
    tally.check(output(running.FERRY, command, "-h") == output(running.FERRY, command, "--help"),
                "ferry %s -h helps as well" % command)
    written = options(section(page, command))
    tally.check(told - {"--help"} <= written, "the manual page has every option of ferry " + command,
                "%s\n%s\n%s" % (told, written, section(page, command)))
    if bash:
        offered = completed("ferry", command, "--")
        tally.check(offered == told, "the options of ferry %s are completed" % command, "%s\n%s" % (told, offered))
tally.finish()
