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
  const escaped = (name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

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
    return { lines, first, defs, loops, operators: operatorsOf(lines, first) };
  }

  // Operators by line, "u-" for a minus before its operand, "+=" and its like, "[=" for what is assigned to an element.
  function operatorsOf(lines, first) {
    const all = [];
    let before = "";
    lines.forEach((line, at) => {
      if (first[at + 1] === at + 1) before = "";
      if (!before && /^\s*@/.test(line)) return; // a decorator
      for (const match of line.matchAll(/\w+|[-+*/@&|^%]=(?!=)|\*\*|\/\/|<=|>=|==|!=|->|:=|<<|>>|\S/g)) {
        const is = match[0], operand = /^[\w)\]}"']/.test(before) && !KEYWORDS.test(before);
        if (/^(\*\*|\/\/|<=|>=|==|!=|<<|>>|[-+*/%@<>&|^[]|[-+*/@&|^%]=)$/.test(is) && operand) all.push({ line: at + 1, is });
        else if (is === "-" && !/^\s*[\d.]/.test(line.slice(match.index + 1))) all.push({ line: at + 1, is: "u-" });
        else if (is === "~") all.push({ line: at + 1, is });
        else if (is === "]" && /^\s*[-+*/@&|^%]?=[^=]/.test(line.slice(match.index + 1))) all.push({ line: at + 1, is: "[=" });
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
    const rows = [];
    const inner = code.defs.filter((d) => d !== def && d.from >= def.from && d.end <= def.end && d.line !== def.line && (def.module ? true : d.line > def.head));
    for (let n = def.inline ? def.line : Math.max(1, def.line); n < def.end; n += 1) {
      if (inner.some((d) => d.from <= n && n < d.end)) continue;
      let from = 0;
      if (!def.module && !def.inline && n <= def.head) {
        if (n < def.head) continue;
        const colon = headEnd(code, def);
        if (colon < 0) continue;
        from = colon;
      }
      rows.push({ line: n, from });
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

  const statementText = (code, start) => {
    let text = code.lines[start - 1];
    for (let n = start + 1; n <= code.lines.length && code.first[n] === start; n += 1) text += "\n" + code.lines[n - 1];
    return text;
  };

  // The names under which a function may call an instance of this class: attributes, and variables that take them.
  function holders(code, def, body, kind) {
    const own = code.defs.filter((d) => d.kind === "class" && d.from <= def.from && def.end <= d.end).pop();
    const made = new RegExp("(?<![\\w.])(\\w+\\.)*" + escaped(kind) + "\\s*\\(");
    const names = new Set();
    for (let n = 1; n <= code.lines.length; n += 1) {
      if (code.first[n] !== n) continue;
      const match = /^\s*((?:self\.)?\w+(?:\s*,\s*(?:self\.)?\w+)*)\s*(?::[^=]+)?=(?!=)([\s\S]*)$/.exec(statementText(code, n));
      if (!match || !made.test(match[2])) continue;
      for (const target of match[1].split(/\s*,\s*/)) {
        if (!target.startsWith("self.") || (own && own.from <= n && n < own.end)) names.add(target);
      }
    }
    for (const { line } of body) {
      const text = statementText(code, code.first[line]);
      const loop = /\bfor\s+([\w\s,()]+?)\s+in\s+([\s\S]+)/.exec(text), taken = /^\s*(\w+)\s*=(?!=)\s*([\w.]+)(\[[^\]]*\])?\s*$/.exec(text);
      for (const name of Array.from(names)) {
        const held = new RegExp("(?<![\\w.])" + escaped(name) + "(?!\\w)");
        if (loop && held.test(loop[2])) (loop[1].match(/\w+/g) || []).forEach((variable) => names.add(variable));
        if (taken && taken[2] === name) names.add(taken[1]);
      }
    }
    return names;
  }

  function sitesOf(code, def, body, name) {
    const patterns = [], signs = [];
    if (name.startsWith("module ")) {
      for (const holder of holders(code, def, body, name.slice(7))) patterns.push(new RegExp("(?<![\\w.])" + escaped(holder) + "(\\[[^\\]]*\\])?\\s*\\(", "g"));
    } else {
      const bare = name.replace(/^\w+::/, ""), inPlace = OPERATORS[bare.replace(/_$/, "")];
      const operator = OPERATORS[bare] || (inPlace && inPlace.length === 1 && !"[<>~".includes(inPlace) ? inPlace + "=" : inPlace);
      if (operator) signs.push(operator);
      if (!bare.startsWith("__")) patterns.push(new RegExp("(?<!\\w)" + escaped(bare) + "\\s*\\(", "g"));
    }
    const sites = [];
    for (const { line, from } of body) {
      const text = code.lines[line - 1];
      let count = 0;
      for (const pattern of patterns) for (const match of text.matchAll(pattern)) count += match.index >= from ? 1 : 0;
      for (const one of code.operators) if (one.line === line && signs.includes(one.is)) count += 1;
      for (let i = 0; i < count; i += 1) sites.push({ line, statement: code.first[line], repeated: repeats(code, def, line) });
    }
    return sites;
  }

  // Whether a line may run more than once in one call of the function.
  function repeats(code, def, line) {
    const start = code.first[line], text = statementText(code, start);
    if (/[([{][^\n]*\bfor\b|\n[\s\S]*\bfor\b|\blambda\b/.test(text)) return true;
    return code.loops.some((loop) => loop.line >= def.line && loop.line <= start && start < loop.end && (loop.line < start || loop.always));
  }

  // The line that made this call, 0 where the text does not tell. turn, turns: which of how many of its like it is.
  function lineOf(code, def, body, names, turn, turns) {
    for (const name of names) {
      const sites = sitesOf(code, def, body, name);
      if (!sites.length) continue;
      const repeated = sites.some((site) => site.repeated), lines = new Set(sites.map((site) => site.line));
      if (!repeated && turns > sites.length) return 0; // some are called under a name that is not known
      if (lines.size === 1) return sites[0].line;
      if (repeated || turns !== sites.length) return 0;
      const torn = sites.some((one, i) => i && one.statement === sites[i - 1].statement && one.line !== sites[i - 1].line);
      return torn ? 0 : sites[turn].line; // within one statement the inner call comes first
    }
    return 0;
  }

  // Of each call [line of the function, function, names, turn, turns, ...] the line that made it, 0 for not told.
  function linesOfCalls(code, calls) {
    const bodies = new Map();
    return calls.map(([line, name, names, turn, turns]) => {
      const key = line + " " + name;
      if (!bodies.has(key)) {
        const def = functionAt(code, line, name);
        bodies.set(key, def && { def, body: bodyOf(code, def) });
      }
      const of = bodies.get(key);
      return of ? lineOf(code, of.def, of.body, names, turn, turns) : 0;
    });
  }

  window.sourceLines = { parse, functionAt, linesOfCalls };
  document.dispatchEvent(new CustomEvent("source-lines"));
})();
