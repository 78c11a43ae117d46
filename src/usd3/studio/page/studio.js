/** The studio: the model that is open, its document, and what the buttons do. */

import * as api from "./api.js";
import { button } from "./dom.js";
import { Drawing } from "./drawing.js";
import { Files } from "./files.js";
import { showHelp } from "./help.js";
import { showHome } from "./home.js";
import { stateOf } from "./link.js";
import { listenToDrops, listenToKeys } from "./listening.js";
import { equal, merged } from "./objects.js";
import { plural, report } from "./report.js";
import { Settings } from "./settings.js";
import { Sharing } from "./sharing.js";
import { Store } from "./store.js";
import { Synth } from "./synth.js";
import { themeSwitch } from "./theme.js";
import { Timeline } from "./timeline.js";
import { Transport } from "./transport.js";
import { Variants } from "./variants.js";

const $ = (id) => document.getElementById(id);
const EDITORS = ["roll", "board", "text", "sequence", "table", "image", "array"];

export class Studio {
  model = null;
  editor = null;
  #frame = null;

  constructor() {
    this.store = new Store();
    this.drawing = new Drawing();
    this.synth = new Synth();
    this.files = new Files($("files"), this);
    this.sharing = new Sharing(this);
    this.settings = new Settings($("settings-form"), () => this.sharing.remember());
    this.timeline = new Timeline($("timeline"), (frame) => { this.#frame = frame; this.#show(); });
    this.variants = new Variants($("variants"), { adopt: (index) => this.#adopt(index), play: (index) => this.#playVariant(index) });
    this.transport = new Transport($("transport"), this.synth, () => { this.#showVariants(); this.sharing.remember(); });
    this.hook = { synth: this.synth, state: this };
  }

  /** Build the page and open what the link names. */
  async start() {
    this.undo = button("", () => this.#back("undo"), { icon: "undo", title: "Undo (Ctrl+Z)" });
    this.redo = button("", () => this.#back("redo"), { icon: "redo", title: "Redo (Ctrl+Shift+Z)" });
    $("history").append(this.undo, this.redo);
    $("global").append(
      button("Share", () => this.sharing.copy(), { icon: "share", title: "Copy a link that draws the same result", id: "share" }),
      themeSwitch(() => { this.editor?.theme?.(); this.variants.clear(); this.#showVariants(); }),
      button("", () => this.help(), { icon: "help", title: "Help and keys (?)" }));
    $("home-button").addEventListener("click", () => this.goHome());
    this.store.subscribe(() => { this.#frame = null; this.timeline.rest(); this.#show(); });
    listenToKeys(this);
    listenToDrops(this);
    foldSettings();
    this.#setOpen(false);
    $("home").hidden = true; // until it is known whether a link opens a model
    addEventListener("hashchange", (event) => report.guard(() => this.#follow(new URL(event.newURL).hash))); // the address bar may be rewritten by now
    await report.guard(async () => {
      const { models, chosen } = await api.models();
      showHome({ cards: $("cards"), form: $("folder") }, models, (name, card) => this.#choose(name, card));
      if (location.hash.length > 1) await this.#follow(location.hash);
      else if (chosen) await this.open(chosen);
    });
    if (!this.model) $("home").hidden = false;
  }

  /** Whether a model is open and on the page. */
  get isOpen() { return this.model !== null && !$("stage").hidden; }

  async #follow(fragment) {
    const state = stateOf(fragment);
    if (!state) return this.goHome();
    await this.open(state.model);
    return this.sharing.restore(state);
  }

  async #choose(name, card) {
    card.classList.add("waiting");
    await report.guard(() => this.open(name));
    card.classList.remove("waiting");
  }

  /** Leave the model; the browser's way back draws what was there again. */
  goHome() {
    if (!this.isOpen) return;
    history.replaceState(null, "", this.sharing.fragment);
    this.stop();
    this.transport.stop();
    this.#setOpen(false);
    history.pushState(null, "", location.pathname + location.search);
    document.title = "USD3 studio";
  }

  /** Open a model and its editor. */
  async open(name) {
    this.stop();
    const model = await api.open(name);
    const module = await import(`./editors/${EDITORS.includes(model.editor.name) ? model.editor.name : "array"}.js`);
    this.transport.stop();
    this.timeline.clear();
    this.variants.clear();
    this.editor = null;
    Object.assign(this, { model, module });
    this.store.reset({ object: model.example, result: null, drawn: null, chosen: 0 });
    this.settings.fill(model);
    this.#setOpen(true);
    this.editor = module.create(this.#context());
    $("tools").replaceChildren(...[this.editor.tools].filter(Boolean));
    $("editor").replaceChildren(this.editor.element);
    $("results").replaceChildren(...[this.editor.results].filter(Boolean));
    $("title").textContent = model.title;
    $("description").textContent = model.description;
    document.title = `${model.title} · USD3 studio`;
    this.transport.attach(this.editor, model, () => this.shown);
    this.files.show(model);
    report.status("");
    report.clear();
    this.#show();
    scrollTo(0, 0);
    $("stage").focus({ preventScroll: true }); // the card that was pressed is gone
  }

  #setOpen(open) {
    $("home").hidden = open;
    $("stage").hidden = !open;
    $("share").hidden = !open;
    $("history").classList.toggle("away", !open);
  }

  /** What editors can do with the studio. */
  #context() {
    return {
      model: this.model, synth: this.synth, doc: () => this.store.doc, announce: report.announce, fail: report.fail,
      commit: (change) => this.store.commit(change), amend: (change) => this.store.amend(change), forget: () => this.store.forget(),
      refresh: () => this.#showButtons(), play: () => this.transport.toggle(),
      seek: () => { if (this.synth.playing) this.transport.start(this.shown); },
    };
  }

  /** What is seen: what is given, and elsewhere the result. */
  get shown() {
    const { object, result } = this.store.doc;
    return Array.isArray(object) ? merged(object, result) : (result ?? object);
  }

  /** Whether there is something on the page, given or drawn. */
  get hasBegun() {
    const { object, result } = this.store.doc;
    return result !== null || !equal(object, this.model.example);
  }

  /** Begin anew with an object, such as one from a file. */
  begin(object) {
    this.stop();
    this.timeline.clear();
    this.store.commit({ object, result: null, drawn: null, chosen: 0 });
    this.editor.reveal?.();
  }

  // ---- drawing --------------------------------------------------------------------------------------------------

  /** Draw by one of the buttons: "generate", "fill" or "harmonise". */
  async draw(action) {
    const clicked = performance.now();
    let heard = null;
    const play = async () => {
      if (action !== "harmonise" || heard !== null) return;
      heard = 0;
      await this.transport.start(this.shown);
      heard = (performance.now() - clicked) / 1000;
    };
    if (action === "harmonise") this.synth.wake().catch(() => {}); // sound needs the gesture of the click
    await report.guard(async () => {
      const { problem } = this.settings;
      if (problem) throw new Error(problem);
      const { send, keep, where } = this.editor.plan(action, this.store.doc);
      this.settings.roll();
      const body = this.wish(send);
      if (where) body.where = [...Object.entries(body.where ?? {}), ...where].map((pair) => pair.join("=")).join(",");
      const done = await this.run(body, keep, play);
      if (!done) return;
      await play();
      const sentence = `${plural(done.objects.length, this.editor.one ?? "variant")} in ${done.seconds.toFixed(done.seconds < 0.1 ? 2 : 1)} s`;
      const sound = heard ? `, first sound after ${heard.toFixed(1)} s` : "";
      report.status([sentence + sound, ...(done.notes ?? [])].join(" · "));
    });
  }

  /** The request of a draw that fills this object. */
  wish(object) { return { model: this.model.model, object, ...this.settings.values, frames: 40 }; }

  /** Draw, and put the result into the document. `first` is called as soon as there is something to play. */
  async run(body, keep, first = () => {}) {
    report.clear();
    this.transport.stop();
    this.timeline.clear();
    report.progress("Starting", null);
    report.announce("Drawing");
    let next = null;
    let early = null; // the document with the first object
    const paint = () => {
      if (next && this.drawing.busy) { this.#frame = next; this.#show(); }
      next = null;
    };
    const put = (change, result) => { this.store[change]({ object: keep, drawn: null, chosen: 0, ...result }); this.timeline.finish(); this.editor.reveal?.(); };
    try {
      const promise = this.drawing.run(body, {
        progress: report.progress,
        frame: (frame) => { this.timeline.add(frame); if (!next) requestAnimationFrame(paint); next = frame; },
        first: (object) => { next = null; put("commit", { result: object }); early = this.store.doc; first(); },
      });
      this.#showButtons();
      const done = await promise;
      if (!done) return null;
      next = null;
      const drawn = { ...done, request: body, kept: keep };
      if (early === null) put("commit", { result: done.objects[0], drawn });
      else if (this.store.doc === early) put("amend", { result: done.objects[0], drawn });
      else this.store.amend({ drawn }); // it was edited meanwhile
      return done;
    } finally {
      if (!this.drawing.busy) {
        this.#frame = null;
        report.progress(null);
        this.#show();
      }
    }
  }

  /** Stop drawing. */
  stop() {
    if (!this.drawing.busy) return;
    this.drawing.stop();
    this.timeline.clear();
    this.#frame = null;
    report.progress(null);
    report.status("Stopped.");
    this.#show();
  }

  #adopt(index) {
    const { drawn } = this.store.doc;
    this.store.commit({ object: drawn.kept, result: drawn.objects[index], chosen: index });
    report.announce(`variant ${index + 1} adopted`);
  }

  #playVariant(index) {
    if (this.transport.variant === index) this.transport.stop();
    else this.transport.start(this.store.doc.drawn.objects[index], index);
  }

  #back(which) {
    this.store[which]();
    report.announce(which === "undo" ? "undone" : "done again");
  }

  // ---- showing ----------------------------------------------------------------------------------------------------

  #show() {
    if (!this.editor) return;
    this.editor.show({ ...this.store.doc, frame: this.#frame });
    this.undo.disabled = !this.store.canUndo;
    this.redo.disabled = !this.store.canRedo;
    if (this.#frame) return;
    this.#showVariants();
    this.#showButtons();
    this.sharing.remember();
  }

  #showVariants() {
    if (!this.editor) return;
    const { drawn, chosen } = this.store.doc;
    this.variants.show(drawn, chosen, this.editor, this.transport.variant);
  }

  #showButtons() {
    if (!this.editor) return;
    const { doc } = this.store;
    const { labels } = this.module;
    const selection = Boolean(this.editor.selected?.());
    const fill = selection ? "Fill the selection" : (this.editor.fillLabel?.(doc) ?? labels.fill);
    const lead = !this.hasBegun ? "generate" : this.editor.canHarmonise && !selection ? "harmonise" : "fill";
    const make = (action, text) => button(text, () => this.draw(action), { class: `big ${lead === action ? "primary" : ""}`, data: { action } });
    const list = [
      this.editor.canHarmonise && make("harmonise", "Harmonise"),
      make("fill", fill), make("generate", labels.generate ?? "Generate"),
      this.drawing.busy && button("Stop", () => this.stop(), { icon: "stop", class: "big stop", data: { action: "stop" } }),
    ].filter(Boolean);
    const focused = document.activeElement?.dataset?.action;
    $("buttons").replaceChildren(...list);
    const next = list.find((element) => element.dataset.action === focused) ?? list.find((element) => element.dataset.action === lead);
    if (focused) next.focus({ preventScroll: true });
  }

  help() { showHelp($("help"), this.isOpen ? this.model.title : "", this.isOpen ? this.module.keys : []); }
}

/** The settings are open where there is room for them. */
function foldSettings() {
  const narrow = matchMedia("(max-width: 999px)");
  const fold = () => { $("settings").open = !narrow.matches; };
  narrow.addEventListener("change", fold);
  fold();
}
