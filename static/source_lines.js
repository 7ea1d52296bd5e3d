// Which line of a Python function makes a call, by the function's text: the line that has the callee's name, or of several
// the one whose turn it is. Where more than one line can have made it, none is named. Nothing here leaves the browser.
(function () {
  "use strict";
  const OPERATORS = {
    add: "+", sub: "-", rsub: "-", mul: "*", div: "/", true_divide: "/", reciprocal: "/", floor_divide: "//", remainder: "%",
    matmul: "@", mm: "@", bmm: "@", pow: "**", neg: "u-", lt: "<", gt: ">", le: "<=", ge: ">=", eq: "==", ne: "!=",
    bitwise_and: "&", __and__: "&", bitwise_or: "|", __or__: "|", bitwise_xor: "^", __xor__: "^", bitwise_not: "~",
    index: "[", index_put: "[=", copy: "[=", fill: "[=",
    __rdiv__: "/", __rtruediv__: "/", __rsub__: "-", __rpow__: "**", __pow__: "**", __ipow__: "**", __rfloordiv__: "//",
    __floordiv__: "//", __rmod__: "%", __rmatmul__: "@",
  };
  const KEYWORDS = /^(return|in|and|or|not|if|elif|else|yield|lambda|is|assert|del|raise|while|await|print)$/;

  // The text with comments and what stands in strings as blanks, so that only code is left, at its own places.
  function blanked(text) {
    const out = text.split("");
    const blank = (from, to) => { for (let i = from; i < to; i += 1) if (out[i] !== "\n") out[i] = " "; };
    let i = 0;
    while (i < text.length) {
      const c = text[i];
      if (c === "#") {
        const end = text.indexOf("\n", i) < 0 ? text.length : text.indexOf("\n", i);
        blank(i, end);
        i = end;
      } else if (c === '"' || c === "'") {
        const quote = text.substr(i, 3) === c.repeat(3) ? c.repeat(3) : c;
        let end = i + quote.length;
        while (end < text.length && text.substr(end, quote.length) !== quote && (quote.length === 3 || text[end] !== "\n")) end += text[end] === "\\" ? 2 : 1;
        blank(i + 1, Math.min(text.length, end)); // the first quote stays: a value stands there
        if (quote.length === 3) blank(end, Math.min(text.length, end + 2));
        i = Math.min(text.length, end + quote.length);
      } else i += 1;
    }
    return out.join("");
  }

  // Of each line by number the first line of its statement; a statement ends with its last bracket.
  function statementsOf(lines) {
    const first = [0];
    let depth = 0, start = 1, goesOn = false;
    lines.forEach((line, at) => {
      if (!depth && !goesOn) start = at + 1;
      first.push(start);
      for (const c of line) depth += "([{".includes(c) ? 1 : ")]}".includes(c) ? -1 : 0;
      depth = Math.max(0, depth);
      goesOn = /\\\s*$/.test(line);
    });
    return first;
  }

  const indent = (line) => line.length - line.trimStart().length;

  // What is indented below the statement that begins here: the line after it.
  function endOf(lines, first, start) {
    let last = start;
    const depth = indent(lines[start - 1]);
    for (let n = start + 1; n <= lines.length; n += 1) {
      if (!lines[n - 1].trim()) continue;
      if (first[n] === n && indent(lines[n - 1]) <= depth) break;
      last = n;
    }
    return last + 1;
  }

  function parse(text) {
    const plain = blanked(text.replace(/\r\n?/g, "\n")), lines = plain.split("\n"), first = statementsOf(lines);
    const defs = [], loops = [];
    for (let n = 1; n <= lines.length; n += 1) {
      if (first[n] !== n) continue;
      const match = /^\s*(async\s+def|def|class)\s+(\w+)/.exec(lines[n - 1]);
      if (match) {
        let from = n, head = n;
        while (from > 1 && /^\s*@/.test(lines[first[from - 1] - 1]) && first[from - 1] < from) from = first[from - 1];
        while (head < lines.length && first[head + 1] === n) head += 1;
        defs.push({ name: match[2], kind: match[1], from, line: n, head, end: endOf(lines, first, n) });
      } else if (/^\s*(async\s+for|for|while)\b/.test(lines[n - 1])) loops.push({ line: n, end: endOf(lines, first, n), always: /^\s*while\b/.test(lines[n - 1]) });
    }
    const code = { lines, first, defs, loops, texts: [], repeated: [], flows: [] };
    return Object.assign(code, { branches: branchesOf(code), operators: operatorsOf(lines, first), made: madeBy(code), ...callsOf(lines) });
  }

  const put = (map, key, value) => (map.has(key) ? map.get(key).push(value) : map.set(key, [value]));

  // What is called, by the name before the bracket and by its whole path; sites in the order of their lines.
  function callsOf(lines) {
    const named = new Map(), paths = new Map();
    lines.forEach((line, at) => {
      for (const match of line.matchAll(/(?<!\w)\w+(?=\s*\()/g)) put(named, match[0], { line: at + 1, index: match.index });
      for (const match of line.matchAll(/(?<![\w.])(?:\w+\.)*\w+(?=(?:\[[^\]]{0,400}\])?\s*\()/g)) put(paths, match[0], { line: at + 1, index: match.index });
    });
    return { named, paths };
  }

  // By class the assignments whose value makes an instance of it: { line, targets }.
  function madeBy(code) {
    const made = new Map();
    for (let n = 1; n <= code.lines.length; n += 1) {
      if (code.first[n] !== n) continue;
      const match = /^\s*((?:self\.)?\w+(?:\s*,\s*(?:self\.)?\w+)*)\s*(?::[^=]+)?=(?!=)([\s\S]*)$/.exec(statementText(code, n));
      if (!match) continue;
      const kinds = new Set(Array.from(match[2].matchAll(/(?<![\w.])(?:\w+\.)*(\w+)\s*\(/g), (call) => call[1]));
      for (const kind of kinds) put(made, kind, { line: n, targets: match[1].split(/\s*,\s*/) });
    }
    return made;
  }

  // Of each line that may not run where those around it do, by what is innermost of an if, a try and their like, its line.
  function branchesOf(code) {
    const { lines, first } = code, branches = new Uint32Array(lines.length + 2);
    for (let n = 1; n <= lines.length; n += 1) {
      if (first[n] === n && /^\s*(if|elif|else|try|except|finally|match|case)\b/.test(lines[n - 1])) branches.fill(n, n, endOf(lines, first, n));
      else if (first[n] === n && /\b(if|and|or)\b/.test(statementText(code, n))) for (let m = n; first[m] === n; m += 1) branches[m] = n;
    }
    return branches;
  }

  // Operators by sign in the order of their lines, without those of a whole number, which count what the program counts: "u-" for a minus before its operand, "+=" and its like, "[=" for what is assigned to an element.
  function operatorsOf(lines, first) {
    const all = new Map();
    let before = "";
    const whole = /^[-+]?\s*\d[\d_]*(?![\w.])/;
    lines.forEach((line, at) => {
      if (first[at + 1] === at + 1) before = "";
      if (!before && /^\s*@/.test(line)) return; // a decorator
      for (const match of line.matchAll(/\d[\d_]*\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|\.\d\w*|\w+|[-+*/@&|^%]=(?!=)|\*\*|\/\/|<=|>=|==|!=|->|:=|<<|>>|\S/g)) {
        const is = match[0], after = line.slice(match.index + is.length, match.index + is.length + 40).trimStart();
        const site = { line: at + 1, index: match.index }, operand = /^[\w.)\]}"']/.test(before) && !KEYWORDS.test(before);
        if (/^(\*\*|\/\/|<=|>=|==|!=|<<|>>|[-+*/%@<>&|^[]|[-+*/@&|^%]=)$/.test(is) && operand) {
          const counts = whole.test(after) || (/^\d[\d_]*$/.test(before) && is !== "[");
          if (!counts) put(all, is, site);
        } else if (is === "-" && !/^[\d.]/.test(after)) put(all, "u-", site);
        else if (is === "~") put(all, is, site);
        else if (is === "]" && /^[-+*/@&|^%]?=[^=]/.test(after)) put(all, "[=", site);
        before = is;
      }
    });
    return all;
  }

  // The function of this name that begins at this line, or the one that was open there; null for none.
  function functionAt(code, line, name) {
    const within = (def) => def.from <= line && line < def.end;
    if (name === "<module>") return { name, from: 1, line: 0, head: 0, end: code.lines.length + 1, module: true };
    if (name.startsWith("<")) return code.lines[line - 1] === undefined ? null : { name, from: line, line, head: line - 1, end: line + 1, inline: true };
    const named = code.defs.filter((def) => def.kind !== "class" && def.name === name);
    return named.find((def) => def.from <= line && line <= def.head) || named.filter(within).pop() || null;
  }

  // The lines of a function with the code that runs when it is called: no header, no function within it.
  function bodyOf(code, def) {
    const rows = new Map(), within = new Uint8Array(def.end + 1); // by line where on it the code begins
    for (const d of code.defs) {
      if (d !== def && d.from >= def.from && d.end <= def.end && d.line !== def.line && (def.module || d.line > def.head)) within.fill(1, d.from, d.end);
    }
    for (let n = def.inline ? def.line : Math.max(1, def.line); n < def.end; n += 1) {
      if (within[n]) continue;
      let from = 0;
      if (!def.module && !def.inline && n <= def.head) {
        if (n < def.head) continue;
        const colon = headEnd(code, def);
        if (colon < 0) continue;
        from = colon;
      }
      rows.set(n, from);
    }
    return rows;
  }

  // Where on its last line the header of a function ends.
  function headEnd(code, def) {
    let depth = 0;
    for (let n = def.line; n <= def.head; n += 1) {
      const text = code.lines[n - 1];
      for (let i = 0; i < text.length; i += 1) {
        depth += "([{".includes(text[i]) ? 1 : ")]}".includes(text[i]) ? -1 : 0;
        if (text[i] === ":" && !depth) return n === def.head ? i + 1 : -1;
      }
    }
    return -1;
  }

  function statementText(code, start) {
    if (code.texts[start] !== undefined) return code.texts[start];
    let end = start + 1;
    while (end <= code.lines.length && code.first[end] === start) end += 1;
    return (code.texts[start] = code.lines.slice(start - 1, end - 1).join("\n"));
  }

  // What a statement hands on: the variables of its loop with all that the loop runs over, and what a variable takes.
  function flowOf(code, start) {
    if (code.flows[start] !== undefined) return code.flows[start];
    const text = statementText(code, start), flow = { variables: [], over: new Set(), taken: null };
    const loop = /\bfor\s+([\w\s,()]+?)\s+in\s+([\s\S]+)/.exec(text), taken = /^\s*(\w+)\s*=(?!=)\s*([\w.]+)(\[[^\]]*\])?\s*$/.exec(text);
    if (taken) flow.taken = [taken[2], taken[1]];
    if (loop) {
      flow.variables = loop[1].match(/\w+/g) || [];
      for (const [path] of loop[2].matchAll(/(?<![\w.])\w+(?:\.\w+)*/g)) {
        const parts = path.split(".");
        parts.slice(0, 8).forEach((_, i) => flow.over.add(parts.slice(0, i + 1).join(".")));
      }
    }
    return (code.flows[start] = loop || taken ? flow : null);
  }

  // The names under which a function may call an instance of this class: attributes, and variables that take them.
  function holders(code, def, body, kind) {
    const own = code.defs.filter((d) => d.kind === "class" && d.from <= def.from && def.end <= d.end).pop();
    const names = new Set();
    for (const { line, targets } of code.made.get(kind) || []) {
      for (const target of targets) if (!target.startsWith("self.") || (own && own.from <= line && line < own.end)) names.add(target);
    }
    let before = 0;
    for (const line of names.size ? body.keys() : []) {
      const start = code.first[line], flow = start === before ? null : flowOf(code, start);
      before = start;
      if (!flow) continue;
      if (Array.from(names).some((name) => flow.over.has(name))) flow.variables.forEach((variable) => names.add(variable));
      if (flow.taken && names.has(flow.taken[0])) names.add(flow.taken[1]);
    }
    return names;
  }

  // Of sites by line those of one function.
  function within(sites, body, def) {
    let low = 0, high = sites.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sites[middle].line < def.from) low = middle + 1; else high = middle;
    }
    const found = [];
    for (; low < sites.length && sites[low].line < def.end; low += 1) {
      if (body.has(sites[low].line) && sites[low].index >= body.get(sites[low].line)) found.push(sites[low]);
    }
    return found;
  }

  // Where a function has this name. byOperator: an operator may stand for it.
  function sitesOf(code, def, body, name, byOperator) {
    const found = [];
    const take = (sites, likely) => { if (sites) for (const { line } of within(sites, body, def)) found.push({ line, likely }); };
    if (name.startsWith("module ")) {
      for (const holder of holders(code, def, body, name.slice(7))) take(code.paths.get(holder), false);
    } else {
      const bare = name.replace(/^\w+::/, ""), inPlace = OPERATORS[bare.replace(/_$/, "")];
      const operator = OPERATORS[bare] || (inPlace && inPlace.length === 1 && !"[<>~".includes(inPlace) ? inPlace + "=" : inPlace);
      if (operator && byOperator) take(code.operators.get(operator), true);
      if (!bare.startsWith("__")) take(code.named.get(bare), false);
    }
    found.sort((one, other) => one.line - other.line);
    return found.map(({ line, likely }) => ({ line, likely, statement: code.first[line], repeated: repeats(code, def, line), branch: code.branches[line] >= Math.max(1, def.from) }));
  }

  // Whether a line may run more than once in one call of the function.
  function repeats(code, def, line) {
    const start = code.first[line];
    if (code.repeated[start] === undefined) {
      const text = statementText(code, start), rest = text.indexOf("\n");
      code.repeated[start] = /^[^([{\n]*[([{][^\n]*\bfor\b/m.test(text) || /\blambda\b/.test(text) || (rest >= 0 && /\bfor\b/.test(text.slice(rest)));
    }
    return code.repeated[start] || code.loops.some((loop) => loop.line >= def.line && loop.line <= start && start < loop.end && (loop.line < start || loop.always));
  }

  const NOWHERE = { line: 0, likely: false };

  // The line that made this call, 0 where the text does not tell. turn, turns: which of how many of its like it is.
  function lineOf(of, code, names, turn, turns) {
    for (const [place, name] of names.entries()) {
      // An operator is called by no frame: it stands for an operation's name, or for the method that Python takes for it.
      const byOperator = !place && (name.includes("::") || name.startsWith("__")), key = `${byOperator} ${name}`;
      if (!of.sites.has(key)) of.sites.set(key, sitesOf(code, of.def, of.body, name, byOperator));
      const sites = of.sites.get(key);
      if (!sites.length) continue;
      const repeated = sites.some((site) => site.repeated), one = sites[0].line === sites[sites.length - 1].line;
      if (!repeated && turns > sites.length) return NOWHERE; // some are called under a name that is not known
      if (one) return sites.find((site) => site.likely) || sites[0];
      if (repeated || turns !== sites.length || sites.some((site) => site.branch)) return NOWHERE;
      const torn = sites.some((site, i) => i && site.statement === sites[i - 1].statement && site.line !== sites[i - 1].line);
      return torn ? NOWHERE : sites[turn]; // within one statement the inner call comes first
    }
    return NOWHERE;
  }

  // Of each call [line of the function, function, names, turn, turns, ...] the line that made it, 0 for not told, and
  // whether it is only likely: an operator stands there, and no name.
  function linesOfCalls(code, calls) {
    const bodies = new Map();
    return calls.map(([line, name, names, turn, turns]) => {
      const key = line + " " + name;
      if (!bodies.has(key)) {
        const def = functionAt(code, line, name);
        bodies.set(key, def && { def, body: bodyOf(code, def), sites: new Map() });
      }
      const of = bodies.get(key), { line: at, likely } = of ? lineOf(of, code, names, turn, turns) : NOWHERE;
      return { line: at, likely };
    });
  }

  window.sourceLines = { parse, functionAt, linesOfCalls };
  document.dispatchEvent(new CustomEvent("source-lines"));
})();
