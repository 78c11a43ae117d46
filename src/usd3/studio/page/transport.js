/** Playing: the buttons below the piano roll and what they do with the synthesiser. */

import { button, h, relabel } from "./dom.js";
import { INSTRUMENTS } from "./instruments.js";
import { report } from "./report.js";

const TEMPI = { least: 30, most: 240 };

export class Transport {
  /** Which variant plays; null: the roll. */
  variant = null;

  /** @param {HTMLElement} element @param {import("./synth.js").Synth} synth @param {() => void} changed */
  constructor(element, synth, changed) {
    Object.assign(this, { element, synth, changed });
    this.button = button("Play", () => this.toggle(), { icon: "play", class: "primary play-button" });
    this.loop = button("", () => this.loop.setAttribute("aria-pressed", String(!this.loops)), { icon: "loop", title: "Repeat", pressed: false });
    this.tempo = h("input", { type: "number", min: TEMPI.least, max: TEMPI.most, step: 1, inputmode: "numeric", id: "tempo" });
    this.sound = h("select", { id: "sound", "aria-label": "Sound" }, ...Object.entries(INSTRUMENTS).map(([value, { title }]) => h("option", { value, text: title })));
    this.volume = h("input", { type: "range", min: 0, max: 1, step: 0.01, value: synth.volume, "aria-label": "Volume", id: "volume" });
    this.sound.addEventListener("change", () => { synth.sound = this.sound.value; });
    this.volume.addEventListener("input", () => { synth.volume = Number(this.volume.value); });
    this.tempo.addEventListener("change", () => changed());
    element.replaceChildren(this.button, this.loop,
      h("label", { class: "inline" }, this.tempo, h("span", { text: "bpm" })), this.sound,
      h("span", { class: "volume" }, this.volume));
  }

  get loops() { return this.loop.getAttribute("aria-pressed") === "true"; }
  /** Beats in a minute, within what is possible. */
  get beats() { return Math.min(Math.max(Number(this.tempo.value) || 100, TEMPI.least), TEMPI.most); }
  set beats(value) { this.tempo.value = value; }

  /** Connect an editor with notes, or null. */
  attach(editor, model, shown) {
    this.stop();
    Object.assign(this, { editor, signature: model.editor, shown });
    this.element.hidden = !editor?.notes;
    if (editor?.notes) this.beats = model.editor.tempo;
  }

  toggle() {
    if (this.synth.playing) return this.stop();
    if (this.editor.notes(this.shown()).length === 0) return report.fail(new Error("There are no notes to play yet."));
    report.clear();
    return this.start(this.shown());
  }

  stop() { this.synth.stop(); }

  /** Play an object; resolves when its first note is scheduled. */
  async start(object, variant = null) {
    const [from, to] = [this.editor.from(), this.editor.to()];
    const notes = this.editor.notes(object);
    const last = notes.at(-1);
    this.synth.stop();
    this.variant = variant;
    const end = last ? Math.min(to, Math.ceil(Math.max(...notes.map((note) => note.end)) / this.signature.steps_per_bar) * this.signature.steps_per_bar) : to;
    const playing = this.synth.play(notes, {
      from: from < end ? from : 0, to: end, stepsPerBeat: this.signature.steps_per_beat, tempo: () => this.beats, loop: () => this.loops,
      onStep: (step) => this.editor.playhead(step),
      onEnd: () => { this.variant = null; this.editor.playhead(null); this.#label(); this.changed(); },
    });
    this.#label();
    this.changed();
    await playing;
  }

  #label() {
    const playing = this.synth.playing;
    relabel(this.button, { icon: playing ? "stop" : "play", label: playing ? "Stop" : "Play" });
  }
}
