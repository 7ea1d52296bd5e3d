"""Several of our modules as one text: what an entry needs, each definition once, no import of ours left.

Definitions are found by name, from the entry through our modules. Modules follow each other as Python would import
them, and within one its own order stands, so that whatever runs at import has what it needs. Every definition keeps
its text, its comments and its name; where two modules use one name, the later one's gets its module in front.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernels.starter_kit.module import PACKAGES, BundleError, Item, Module, module_of, read
from kernels.starter_kit.names import Import, Reference

Name = tuple[str, str]
"""A definition: module and name."""
Target = Name | Import


@dataclass
class _Bundle:
    """What is needed so far."""

    virtual: Mapping[str, Module]
    instead: Mapping[Name, Name]
    items: dict[str, list[Item]] = field(default_factory=dict)  # by module, in the order found
    targets: dict[Target, set[str]] = field(default_factory=dict)  # name or import -> what it must not be called

    def module(self, name: str) -> Module | None:
        return self.virtual.get(name) or module_of(name)

    def resolve(self, module: Module, reference: Reference) -> tuple[Target, int] | None:
        """What a reference means and how many parts of its path say so; None for builtins and what is unknown."""
        name = reference.path[0]
        meant = reference.imported or module.imported.get(name)
        if reference.imported is None and module.binding(name):
            return self.replaced((module.name, name)), 1
        if meant is None:
            return None
        return self.followed(meant, reference)

    def followed(self, meant: Import, reference: Reference) -> tuple[Target, int]:
        if not meant.own(PACKAGES):
            return meant, 1
        whole = meant.module if meant.name is None else f"{meant.module}.{meant.name}"
        if self.module(whole) is not None:
            if len(reference.path) < 2 or meant.name is None:
                raise BundleError(f"{whole} is used as a value")
            return self.definition(whole, reference.path[1]), 2
        assert meant.name is not None
        return self.definition(meant.module, meant.name), 1

    def definition(self, module: str, name: str) -> Target:
        """Where a name comes from that a module may only pass on."""
        if (module, name) in self.instead:
            return self.instead[module, name]
        source = self.module(module)
        if source is not None and source.binding(name):
            return module, name
        if source is None or name not in source.imported:
            raise BundleError(f"{module}.{name} is not found")
        meant = source.imported[name]
        if not meant.own(PACKAGES) or meant.name is None:
            return meant
        return self.definition(meant.module, meant.name)

    def replaced(self, name: Name) -> Name:
        return self.instead.get(name, name)

    def take(self, module: Module, item: Item) -> None:
        """An item with everything it needs."""
        pending = [(module, item)]
        while pending:
            module, item = pending.pop()
            taken = self.items.setdefault(module.name, [])
            if item in taken:
                continue
            taken.append(item)
            for reference in item.found.references:
                resolved = self.resolve(module, reference)
                if resolved is None:
                    continue
                target, _ = resolved
                new = target not in self.targets
                self.targets.setdefault(target, set()).update(reference.hidden)
                if new and not isinstance(target, Import):
                    source = self.module(target[0])
                    assert source is not None
                    pending += [(source, i) for i in source.binding(target[1])]
            for name in item.names:
                self.targets.setdefault((module.name, name), set())


def bundle(entry: str, texts: Mapping[str, str], instead: Mapping[Name, Name] | None = None, doc: str = "") -> str:
    """The text of one file that does what the module `entry` does and imports none of ours.

    texts: modules that exist only as text, the entry among them. instead: definitions that stand for others. doc: the
    file's own docstring. Raises BundleError.
    """
    made = _Bundle({name: read(name, text) for name, text in texts.items()}, dict(instead or {}))
    first = made.virtual[entry]
    for item in first.items:
        made.take(first, item)
    order = _ordered(made, entry)
    names = _named(made, [entry, *(m for m in order if m != entry)])
    parts = [_import_lines([t for t in names if isinstance(t, Import)], names)]
    for name in order:
        module = made.module(name)
        assert module is not None
        chosen = sorted(made.items[name], key=lambda i: i.first)
        texts_of = [_text(made, module, item, names) for item in chosen]
        heading = _heading(module) if name != entry else ""
        parts.append("\n".join([heading] * bool(heading)) + ("\n" if heading else "") + _joined(texts_of))
    return f'"""{doc}"""\n\n' + "\n\n\n".join(p.strip("\n") for p in parts) + "\n"


def _ordered(made: _Bundle, entry: str) -> list[str]:
    """Modules, those imported in front; imports within functions do not count, as they run later."""
    done: list[str] = []
    begun: set[str] = set()

    def visit(name: str) -> None:
        if name in begun:
            return
        begun.add(name)
        module = made.module(name)
        assert module is not None
        for meant in module.imported.values():
            if meant.own(PACKAGES):
                whole = f"{meant.module}.{meant.name}"
                visit(whole if made.module(whole) is not None else meant.module)
        for source, target in made.instead.items():
            if any(i.module == source[0] and i.name == source[1] for i in module.imported.values()):
                visit(target[0])
        done.append(name)

    visit(entry)
    done = [n for n in done if n != entry]
    late = sorted(m for m in made.items if m not in begun)
    for name in late:
        visit(name)
    done = [*dict.fromkeys([*done, *late]), entry]
    return [n for n in done if n in made.items]


def _named(made: _Bundle, modules: Sequence[str]) -> dict[Target, str]:
    """What each is called in the file. Imports come first, then modules in this order, names in alphabetical order."""
    position = {m: i for i, m in enumerate(modules)}
    imports = sorted((t for t in made.targets if isinstance(t, Import)), key=lambda t: (t.module, t.name or ""))
    own = sorted((t for t in made.targets if not isinstance(t, Import)), key=lambda t: (position[t[0]], t[1]))
    spoken = _spoken(made)
    taken: set[str] = set(dir(builtins))
    names: dict[Target, str] = {}
    order: list[Target] = [*imports, *own]
    for target in order:
        hidden = made.targets[target]
        for name in _proposals(target, spoken):
            if name not in taken and name not in hidden:
                break
        names[target] = name
        taken.add(name)
    return names


def _spoken(made: _Bundle) -> dict[Import, str]:
    """The name by which our modules know an import: `tl` for triton.language."""
    names: dict[Import, str] = {}
    for name in sorted(made.items):
        module = made.module(name)
        assert module is not None
        for bound, meant in sorted(module.imported.items()):
            names.setdefault(meant, bound)
    return names


def _proposals(target: Target, spoken: Mapping[Import, str]) -> Sequence[str]:
    if isinstance(target, Import):
        plain = spoken.get(target) or target.name or target.module.partition(".")[0]
        return [plain, *(f"{plain}_{n}" for n in range(2, 100))]
    module, name = target
    if name.startswith("__"):
        return [name]
    longer = f"{module.rpartition('.')[2]}_{name.strip('_')}"
    if name.isupper():
        longer = longer.upper()
    elif name[:1].isupper():
        longer = name + module.rpartition(".")[2].title().replace("_", "")
    return [name, longer, *(f"{longer}_{n}" for n in range(2, 1000))]


def _import_lines(imports: Sequence[Import], names: Mapping[Target, str]) -> str:
    """Import statements: the standard library's, then the others."""
    groups: list[list[str]] = [[], []]
    by_module: dict[str, list[str]] = {}
    for item in sorted(imports, key=lambda i: (i.module, i.name or "")):
        if item == Import("__future__", "annotations"):
            continue
        group = groups[0 if item.module.partition(".")[0] in sys.stdlib_module_names else 1]
        if item.name is None:
            plain = names[item] == item.module.partition(".")[0]
            group.append(f"import {item.module}" + ("" if plain else f" as {names[item]}"))
        else:
            same = names[item] == item.name
            by_module.setdefault(item.module, []).append(item.name + ("" if same else f" as {names[item]}"))
    for module, parts in by_module.items():
        line = f"from {module} import {', '.join(parts)}"
        groups[0 if module.partition(".")[0] in sys.stdlib_module_names else 1].append(line)
    ordered = [sorted(g, key=lambda s: (s.startswith("from"), s)) for g in groups]
    return "\n\n".join(["from __future__ import annotations", *("\n".join(g) for g in ordered if g)])


def _heading(module: Module) -> str:
    """The module's own docstring as a comment."""
    title = module.name.replace(".", "/") + ".py"
    lines = [f"# ---- {title} {'-' * (112 - len(title))}", *(f"# {line}".rstrip() for line in module.doc.splitlines())]
    return "\n".join(lines) + "\n\n"


def _text(made: _Bundle, module: Module, item: Item, names: Mapping[Target, str]) -> str:
    """An item's lines with its references by their names in this file, and without imports of ours."""
    edits: list[tuple[int, int, int, bytes]] = []
    for reference in item.found.references:
        resolved = made.resolve(module, reference)
        if resolved is None:
            continue
        target, count = resolved
        wanted = ".".join([names[target], *reference.path[count:]]).encode()
        line, start, last, end = reference.position
        spelt = module.lines[line - 1][start:end]
        if spelt == wanted:
            continue
        if line != last or spelt.decode() != ".".join(reference.path):
            raise BundleError(f"{module.name}, line {line}: {'.'.join(reference.path)} cannot be renamed")
        edits.append((line - 1, start, end, wanted))
    lines = {n: module.lines[n] for n in range(item.first, item.last + 1)}
    for line, start, end, wanted in sorted(set(edits), reverse=True):
        lines[line] = lines[line][:start] + wanted + lines[line][end:]
    for name in item.names:
        if names[module.name, name] != name:
            _rename_definition(module, item, name, names[module.name, name], lines)
    for node in item.found.removed:
        for n in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines.pop(n, None)
    return b"\n".join(lines[n] for n in sorted(lines)).decode()


def _rename_definition(module: Module, item: Item, name: str, new: str, lines: dict[int, bytes]) -> None:
    """The name after def or class; an assignment's is a reference like any other."""
    for n in sorted(lines):
        for word in (b"def ", b"class "):
            start = word + name.encode()
            rest = lines[n][len(start) : len(start) + 1]
            if lines[n].startswith(start) and rest in (b"(", b":"):
                lines[n] = word + new.encode() + lines[n][len(start) :]
                return


def _joined(texts: Sequence[str]) -> str:
    """Functions and classes two lines apart, plain statements one under another."""
    made = ""
    for i, text in enumerate(texts):
        if i:
            apart = any(_is_block(t) for t in (text, texts[i - 1]))
            made += "\n\n\n" if apart else "\n"
        made += text
    return made


def _is_block(text: str) -> bool:
    first = next((line for line in text.split("\n") if not line.startswith("#")), "")
    return first.startswith(("def ", "class ", "@", "if "))
