// What the editor of a region's text takes of CodeMirror; tools/editor/build.py makes static/vendor/codemirror.min.js of it.
import { StyleModule } from "style-mod";

// style-mod writes a <style> element into a document, which the content policy forbids; a constructed sheet is no element.
StyleModule.mount = (root, modules) => {
  const sheet = StyleModule.sheet || (StyleModule.sheet = new CSSStyleSheet());
  sheet.replaceSync([].concat(modules).map((module) => module.getRules()).join("\n"));
  const page = root.adoptedStyleSheets;
  if (!page.includes(sheet)) root.adoptedStyleSheets = [...page, sheet];
};

export { Compartment, EditorState, Prec, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
export { Decoration, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
export { HighlightStyle, StreamLanguage, bracketMatching, syntaxHighlighting } from "@codemirror/language";
export { acceptCompletion, autocompletion, completionStatus } from "@codemirror/autocomplete";
export { history, historyKeymap, standardKeymap } from "@codemirror/commands";
export { tags } from "@lezer/highlight";
