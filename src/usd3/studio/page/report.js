/** What the page says: the progress, one line about the last draw, and errors. */

import { button, h } from "./dom.js";

const $ = (id) => document.getElementById(id);

export const report = {
  /** The line below the buttons; screen readers read it. */
  status(text) { $("status").textContent = text; },

  /** Say something to screen readers alone. */
  announce(text) { $("announcer").textContent = text; },

  /** How far a draw is: `share` in [0, 1], null where nobody knows; `text` null: nothing is drawn. */
  progress(text, share = 0) {
    const bar = $("progress");
    const busy = text !== null;
    const percent = String(Math.round((share ?? 0) * 100));
    document.body.classList.toggle("busy", busy);
    bar.classList.toggle("unknown", busy && share === null);
    bar.setAttribute("aria-valuenow", percent);
    bar.setAttribute("aria-valuetext", text ?? "");
    bar.firstElementChild.style.width = `${percent}%`;
    $("progress-text").textContent = text ?? "";
  },

  /** Show what went wrong as one clear line. */
  fail(error) {
    const close = button("", () => { report.clear(); $("stage").focus({ preventScroll: true }); }, { icon: "close", title: "Close" });
    $("alert").replaceChildren(h("span", { text: error.message }), close);
    $("alert").hidden = false;
    report.status("");
  },

  clear() { $("alert").hidden = true; },

  /** Run something; show its failure, or `line` in its place. */
  async guard(work, line) {
    try {
      return await work();
    } catch (error) {
      report.fail(line ? new Error(line) : error);
      return undefined;
    }
  },
};

export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
