"""Questions about a project whose answers its syntax tree knows, as tasks that are checked by the answer."""
import ast
import json
import os

from changes import functions, order_of, sources


def raised_texts(node):
    """Texts of the exceptions that a function raises."""
    for each in ast.walk(node):
        if not isinstance(each, ast.Raise) or not isinstance(each.exc, ast.Call):
            continue
        for argument in each.exc.args:
            for part in ast.walk(argument):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value.split()) >= 2:
                    yield part.value


def called_names(node):
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            function = each.func
            if isinstance(function, ast.Name):
                yield function.id
            elif isinstance(function, ast.Attribute):
                yield function.attr


def questions_of(files):
    """(name, question, answer, path that has it); only where exactly one function is right, and its name stands once."""
    raisers, callers, defined = {}, {}, {}
    for path, _, tree in sources(files):
        for name, node in functions(tree):
            short = name.split(".")[-1]
            defined.setdefault(short, set()).add((path, name))
            for text in set(raised_texts(node)):
                raisers.setdefault(text, set()).add((path, short))
            for called in set(called_names(node)) - {short}:
                callers.setdefault(called, set()).add((path, short))
    for text, found in sorted(raisers.items()):
        path, short = next(iter(found))
        if len(found) == 1 and len(defined[short]) == 1 and "\n" not in text:
            yield (f"raises-{short.strip('_')}",
                   f"A user sees an error with this text:\n\n    {text.strip()}\n\nWhich function or method of the project "
                   "raises it? Answer with its name alone, without the class.", short)
    for called, found in sorted(callers.items()):
        path, short = next(iter(found))
        if len(found) == 1 and len(defined.get(called, ())) == 1 and len(defined[short]) == 1:
            own, _ = next(iter(defined[called]))
            yield (f"calls-{called.strip('_')}",
                   f"{called} in {own} is to be changed. Which function or method of the project, tests aside, calls it "
                   "and would have to follow? There is one. Answer with its name alone, without the class.", short)


def write_tasks(project, files, out, most):
    """`out`/PROJECT/NAME.yaml beside one copy of the project."""
    chosen, names = [], set()
    for name, question, answer in sorted(questions_of(files), key=lambda each: order_of(project, *each)):
        if name in names or len(answer) < 4 or answer in question:
            continue
        names.add(name)
        chosen.append((name, question, answer))
    folder = os.path.join(out, project)
    for name, question, answer in chosen[:most]:
        for path, content in files.items():
            target = os.path.join(folder, "repo.files", path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(content)
        text = f"The folder holds the source of {project}. {question}"
        lines = ["instruction: " + json.dumps(text), "kind: explain", "turns: 20", "files: {.: {from: repo.files}}",
                 "check: {answer: " + json.dumps(answer) + "}", "solution: {answer: " + json.dumps(answer) + "}"]
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
