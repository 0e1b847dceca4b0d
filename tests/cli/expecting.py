"""What every failed run of ferry owes its user, checked in one place.

It ends in time with the documented exit code, says its cause once and completely, and leaves no process behind.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running

CODE = {"done": 0, "internal": 1, "usage": 2, "topology": 3, "model": 4, "environment": 5, "mismatch": 6, "timeout": 7,
        "lost": 8, "storage": 9, "stopped": 10}

# "ferry: rank 0/2 stage 0: error: model: ..." up to the next line of ferry or mpirun.
CAUSE = re.compile(r"^ferry: (?:rank \d+/\d+[^:]*: )?error: ", re.MULTILINE)


def causes(result):
    """How many causes ferry printed."""
    return len(CAUSE.findall(result.err))


def failure(tally, name, result, codes, *needles, within=10.0, printed=1, absent=()):
    """One check that says everything that is wrong about a failed run.  codes: one name, or several that are right;
    needles: regular expressions that its words must match."""
    codes = [codes] if isinstance(codes, str) else codes
    words = result.err + result.out
    wrong = []
    if result.code not in [CODE[code] for code in codes]:
        wrong.append("exit code %s, expected %s" % (result.code, " or ".join("%d (%s)" % (CODE[c], c) for c in codes)))
    if result.seconds > within:
        wrong.append("took %.1f s, at most %.1f" % (result.seconds, within))
    if result.left:
        wrong.append("left behind: %s" % result.left)
    if printed is not None and causes(result) != printed:
        wrong.append("%d causes printed, expected %d" % (causes(result), printed))
    for needle in needles:
        if not re.search(needle, words, re.DOTALL):
            wrong.append("does not say /%s/" % needle)
    for word in absent:
        if re.search(word, words):
            wrong.append("says /%s/" % word)
    return tally.check(not wrong, name, "%s\n%s" % ("; ".join(wrong), result.summary()))


def success(tally, name, result, within=60.0):
    """within promises nothing: on a busy machine, or sanitized, it may last."""
    wrong = []
    if result.code != 0:
        wrong.append("exit code %s" % result.code)
    if result.seconds > within * running.PATIENCE:
        wrong.append("took %.1f s" % result.seconds)
    if result.left:
        wrong.append("left behind: %s" % result.left)
    return tally.check(not wrong, name, "%s\n%s" % ("; ".join(wrong), result.summary()))
