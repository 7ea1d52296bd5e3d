// The editor of a region's text: CodeMirror over the form's textarea, which stays the field that is sent. Loaded once one
// comes near the screen; without it, and without scripts, the textarea is what is typed into.
(function () {
  "use strict";
  const { bundle, vocabulary } = document.currentScript.dataset;
  const NEAR_PX = 300;
  let loading = null;

  function script(address) {
    return new Promise((done, failed) => {
      const element = document.createElement("script");
      element.src = address;
      element.addEventListener("load", done);
      element.addEventListener("error", failed);
      document.head.append(element);
    });
  }

  async function names() {
    try {
      const response = await fetch(vocabulary);
      return response.ok ? await response.json() : null;
    } catch (e) { return null; } // highlighting and completion go without
  }

  function load() {
    loading = loading || Promise.all([script(bundle), names()]).then(([, known]) => known);
    return loading;
  }

  // -------------------------------------------------------------------------------------------------------- language
  const NAME = /^[A-Za-z_]\w*/;
  const NUMBER = /^(?:\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)/;
  const KEYWORDS = new Set(["for", "in", "return"]);
  const ATOMS = new Set(["True", "False", "None"]);

  function languageOf(known) {
    const dtypes = new Set(known ? known.dtypes : []);
    const modules = new Set(known ? Object.keys(known.functions).map((module) => module.split(".")[0]) : []);
    function token(stream, state) {
      if (stream.sol()) state.declares = /^\s*\w+\s*:/.test(stream.string) && !/^\s*for\b/.test(stream.string);
      if (stream.eatSpace()) return null;
      if (stream.match(/^#.*/)) return "comment";
      if (stream.match(/^("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)/)) return "string";
      if (stream.match(NUMBER)) return "number";
      const dotted = stream.string[stream.pos - 1] === ".";
      const name = stream.match(NAME);
      if (!name) { stream.next(); return "operator"; }
      if (dotted) return /^\s*\(/.test(stream.string.slice(stream.pos)) ? "function" : "propertyName";
      if (KEYWORDS.has(name[0])) return "keyword";
      if (ATOMS.has(name[0])) return "atom";
      if (state.declares && stream.string.slice(0, stream.start).trim() === "") return "definition";
      if (dtypes.has(name[0]) || name[0] === "sizes") return "typeName";
      if (modules.has(name[0])) return "namespace";
      return /^\s*\(/.test(stream.string.slice(stream.pos)) ? "function" : "variableName";
    }
    const { tags } = CodeMirror;
    return CodeMirror.StreamLanguage.define({
      name: "region", token,
      startState: () => ({ declares: false }), copyState: (state) => ({ ...state }),
      languageData: { commentTokens: { line: "#" } },
      tokenTable: { definition: tags.definition(tags.variableName), function: tags.function(tags.variableName) },
    });
  }

  function colours() {
    const { tags } = CodeMirror;
    const classes = [
      [tags.comment, "comment"], [tags.string, "string"], [tags.number, "number"], [tags.keyword, "keyword"],
      [tags.atom, "number"], [tags.typeName, "type"], [tags.namespace, "module"],
      [tags.function(tags.variableName), "function"], [tags.definition(tags.variableName), "defined"],
    ];
    return CodeMirror.HighlightStyle.define(classes.map(([tag, name]) => ({ tag, class: `r-${name}` })));
  }

  // ------------------------------------------------------------------------------------------------------ completion
  // The names that a text gives values: inputs, what is assigned, what a loop counts with.
  function ownNames(lines) {
    const own = new Map();
    for (const line of lines) {
      const input = /^\s*([A-Za-z_]\w*)\s*:\s*(.+)$/.exec(line);
      const loop = /^\s*for\s+([A-Za-z_]\w*)\s+in\b/.exec(line);
      const assigned = /^\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*=[^=]/.exec(line);
      if (loop) own.set(loop[1], "");
      else if (input) own.set(input[1], input[2].trim());
      else if (assigned) assigned[1].split(",").forEach((name) => { if (!own.has(name.trim())) own.set(name.trim(), ""); });
    }
    return own;
  }

  const option = (type) => ([label, takes, kind]) => ({ label, type, detail: [takes, kind].filter(Boolean).join("  ") });
  const plain = (type) => (label) => ({ label, type });

  function bareNames(known) {
    const named = new Map();
    for (const module of known.bare) for (const row of known.functions[module]) if (!named.has(row[0])) named.set(row[0], row);
    return Array.from(named.values(), option("function"));
  }

  function completionsOf(known) {
    const bare = bareNames(known);
    const modules = Object.keys(known.functions);
    const behindModule = (module) => [
      ...(known.functions[module] || []).map(option("function")), ...(known.constants[module] || []).map(plain("constant")),
      ...modules.filter((other) => other.startsWith(`${module}.`)).map((other) => plain("namespace")(other.slice(module.length + 1))),
    ];
    const behindValue = [...known.methods.map(option("method")), ...known.properties.map(plain("property"))];
    const types = [...known.dtypes.map(plain("type")), plain("keyword")("sizes")];
    return (context) => {
      const line = context.state.doc.lineAt(context.pos);
      const before = line.text.slice(0, context.pos - line.from);
      const word = /\w*$/.exec(before)[0];
      const from = context.pos - word.length;
      const lead = before.slice(0, before.length - word.length);
      if (/#/.test(lead) || /^\d/.test(word)) return null;
      const answer = (options) => ({ from, options, validFor: /^\w*$/ });
      const declares = /^\s*\w+\s*:/.test(lead) && !/^\s*for\b/.test(lead);
      if (declares && /:\s*$/.test(lead)) return word || context.explicit ? answer(types) : null;
      if (/\.$/.test(lead)) {
        if (declares) return answer(known.suffixes.map(plain("property")));
        const path = /([A-Za-z_][\w.]*)\.$/.exec(lead);
        const options = path && (modules.includes(path[1]) || known.constants[path[1]]) ? behindModule(path[1]) : behindValue;
        return /\d\.$/.test(lead) && !/\w[A-Za-z_]*\d*\.$/.test(lead) ? null : answer(options);
      }
      if (!word && !context.explicit) return null;
      const lines = context.state.doc.toString().split("\n");
      lines.splice(line.number - 1, 1);
      const own = Array.from(ownNames(lines), ([label, detail]) => ({ label, type: "variable", detail, boost: 50 }));
      if (own.some(({ label }) => label === word) && !context.explicit) return null; // it is written already
      if (declares) return answer(own);
      const rest = [...modules.filter((m) => !m.includes(".")).map(plain("namespace")), ...known.words.map(plain("keyword"))];
      return answer([...own, ...rest, ...bare]);
    };
  }

  // --------------------------------------------------------------------------------------------------------- problem
  // Where the answer below the editor says that something is wrong: line and column from 1, the end where it is known.
  function problemIn(form) {
    const said = form && form.querySelector("[data-line]");
    if (!said) return null;
    const number = (name) => Number(said.dataset[name]) || 0;
    return { line: number("line"), column: number("column"), end: number("endColumn"), text: said.textContent.trim() };
  }

  function marksOf(problem, doc) {
    if (!problem || problem.line < 1 || problem.line > doc.lines) return CodeMirror.Decoration.none;
    const { Decoration } = CodeMirror;
    const line = doc.line(problem.line);
    let from = Math.min(line.from + Math.max(0, problem.column - 1), line.to);
    const to = problem.end > problem.column ? Math.min(line.from + problem.end - 1, line.to)
      : from + (/^\w+|^./.exec(line.text.slice(from - line.from)) || [""])[0].length;
    if (from >= to) from = Math.max(line.from, to - 1);
    const marks = [Decoration.line({ class: "r-wrong-line" }).range(line.from)];
    if (from < to) marks.push(Decoration.mark({ class: "r-wrong", attributes: { title: problem.text } }).range(from, to));
    return Decoration.set(marks);
  }

  // ---------------------------------------------------------------------------------------------------------- linked
  function markLines(view, effects, lines) {
    const { doc } = view.state;
    const marks = lines.filter((n) => n >= 1 && n <= doc.lines).map((n) => doc.line(n).from).sort((a, b) => a - b)
      .map((at) => CodeMirror.Decoration.line({ class: "r-linked" }).range(at));
    view.dispatch({ effects: effects.linked.of(CodeMirror.Decoration.set(marks)) });
  }

  // ----------------------------------------------------------------------------------------------------------- mount
  function field(effect) {
    const { Decoration, EditorView, StateField } = CodeMirror;
    return StateField.define({
      create: () => Decoration.none,
      update: (marks, transaction) => transaction.effects.reduce(
        (now, e) => (e.is(effect) ? e.value : now), marks.map(transaction.changes)),
      provide: (self) => EditorView.decorations.from(self),
    });
  }

  let shared = null;
  function extensionsOf(known) {
    if (shared) return shared;
    const { EditorView, EditorState, Prec, StateEffect, keymap } = CodeMirror;
    const effects = { problem: StateEffect.define(), linked: StateEffect.define() };
    const problems = field(effects.problem);
    const accepting = { key: "Tab", run: (view) => CodeMirror.completionStatus(view.state) === "active" && CodeMirror.acceptCompletion(view) };
    const extensions = [
      CodeMirror.lineNumbers(), CodeMirror.history(), CodeMirror.bracketMatching(), CodeMirror.highlightActiveLine(),
      languageOf(known), CodeMirror.syntaxHighlighting(colours()), EditorView.lineWrapping, EditorState.tabSize.of(4),
      CodeMirror.autocompletion({ override: known ? [completionsOf(known)] : [], icons: false, maxRenderedOptions: 12 }),
      problems, field(effects.linked), Prec.highest(keymap.of([accepting])),
      keymap.of([...CodeMirror.historyKeymap, ...CodeMirror.standardKeymap]),
      EditorView.contentAttributes.compute([problems], (state) => (
        { "aria-invalid": String(state.field(problems).size > 0), "aria-describedby": "region-error", spellcheck: "false",
          autocapitalize: "off" })),
    ];
    shared = { effects, extensions };
    return shared;
  }

  async function mount(area) {
    if (area.dataset.editor === "on") return;
    area.dataset.editor = "on";
    const known = await load();
    if (!area.isConnected) return;
    const { EditorView } = CodeMirror;
    const { effects, extensions } = extensionsOf(known);
    const height = area.offsetHeight;
    const told = EditorView.updateListener.of((update) => {
      if (update.docChanged && area.value !== update.state.doc.toString()) {
        area.value = update.state.doc.toString();
        area.dispatchEvent(new Event("input", { bubbles: true }));
      }
      if (update.selectionSet || update.focusChanged) {
        const { head } = update.state.selection.main;
        const line = update.view.hasFocus ? update.state.doc.lineAt(head).number : 0;
        area.dispatchEvent(new CustomEvent("editor:line", { bubbles: true, detail: { line, by: "cursor" } }));
      }
    });
    const label = document.querySelector(`label[for="${area.id}"]`);
    const selected = { anchor: area.selectionStart, head: area.selectionEnd };
    const typing = document.activeElement === area;
    const view = new EditorView({
      doc: area.value, selection: typing ? selected : undefined,
      extensions: [...extensions, told, EditorView.contentAttributes.of({ "aria-label": label ? label.textContent : "Text" })],
    });
    view.dom.style.minHeight = `${height}px`;
    area.after(view.dom);
    area.classList.add("behind-editor");
    area.tabIndex = -1;
    area.setAttribute("aria-hidden", "true");
    area.focus = () => view.focus();
    area.editorView = view;
    if (typing) view.focus();
    if (label) label.addEventListener("click", (event) => { event.preventDefault(); view.focus(); });
    area.addEventListener("input", () => {
      const now = view.state.doc.toString();
      if (area.value !== now) view.dispatch({ changes: { from: 0, to: now.length, insert: area.value } });
    });
    const hovered = (line) => area.dispatchEvent(new CustomEvent("editor:line", { bubbles: true, detail: { line, by: "pointer" } }));
    let place = "";
    view.contentDOM.addEventListener("mousemove", (event) => {
      const now = `${event.screenX} ${event.screenY}`;
      if (now === place) return; // the page moved, not the pointer
      place = now;
      const at = view.posAtCoords({ x: event.clientX, y: event.clientY });
      hovered(at === null ? 0 : view.state.doc.lineAt(at).number);
    });
    view.contentDOM.addEventListener("mouseleave", () => hovered(0));
    area.addEventListener("editor:mark", (event) => markLines(view, effects, event.detail.lines));
    area.addEventListener("editor:problem", () => {
      view.dispatch({ effects: effects.problem.of(marksOf(problemIn(area.form), view.state.doc)) });
    });
    area.dispatchEvent(new Event("editor:problem"));
  }

  // -------------------------------------------------------------------------------------------------------- lifetime
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) { near.unobserve(target); mount(target); }
  }, { rootMargin: `${NEAR_PX}px` });
  const areas = () => document.querySelectorAll("textarea[data-editor]");
  const watch = () => areas().forEach((area) => { if (area.dataset.editor !== "on") near.observe(area); });
  const underline = () => areas().forEach((area) => area.dispatchEvent(new Event("editor:problem")));

  document.addEventListener("htmx:afterSettle", () => { watch(); underline(); });
  document.addEventListener("htmx:beforeCleanupElement", (event) => {
    if (event.detail.elt.editorView) event.detail.elt.editorView.destroy();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    const area = event.target.closest && event.target.closest("form") && event.target.closest("form").querySelector("textarea[data-editor]");
    if (!area || !(event.target === area || event.target.closest(".cm-editor"))) return;
    event.preventDefault();
    event.stopPropagation();
    if (area.dataset.enter === "follow") area.dispatchEvent(new Event("change", { bubbles: true }));
    else area.form.requestSubmit();
  }, true);
  watch();
})();
