"""What scripts that compare a real model with another implementation share: running tandem, and the paragraphs of files as tokens."""
import json
import subprocess
import sys


def run(arguments, lines):
    """The answers of a tandem command to lines of JSON; ends the process where it fails."""
    made = subprocess.run([str(part) for part in arguments], input="".join(json.dumps(line) + "\n" for line in lines),
                          capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(made.stderr + made.stdout)
    return [json.loads(line) for line in made.stdout.splitlines()]


def samples_of(tandem, model, files, count, tokens):
    """The first `count` paragraphs by the alphabet, each as at most `tokens` ids."""
    texts = sorted({text for path in files for text in path.read_text(encoding="utf-8").split("\n\n") if len(text) > 40})
    return [answer["ids"][:tokens] for answer in run([tandem, "tokenize", "--model", model], [{"text": text} for text in texts[:count]])]
