/**
 * A small synthesiser: nothing is downloaded, every sound is computed.
 *
 *   two detuned oscillators -> envelope -> low-pass -> place of the voice -> dry and room -> compressor -> volume -> analyser
 */

import { instrument } from "./instruments.js";

const AHEAD = 0.15; // seconds that are scheduled before they sound
const TICK = 30; // milliseconds between looks ahead
const PLACES = [-0.25, 0.3, -0.45, 0.45]; // left and right, by voice
const ROOM = 1.8; // seconds of reverberation

const frequency = (pitch) => 440 * 2 ** ((pitch - 69) / 12);

export class Synth {
  /** @type {AudioContext|null} made by the first gesture */
  context = null;
  analyser = null;
  sound = "felt";
  #volume = 0.8;
  #buses = [];
  #waves = new Map();
  #sounding = new Set();
  #run = null;

  get playing() { return this.#run !== null; }
  get volume() { return this.#volume; }
  set volume(value) {
    this.#volume = value;
    if (this.context) this.master.gain.setTargetAtTime(value ** 2, this.context.currentTime, 0.02);
  }

  /** Make the graph, or wake it; call it in a gesture. */
  async wake() {
    if (!this.context) this.#build();
    if (this.context.state !== "running") await this.context.resume();
  }

  /** Loudness of the moment, the root of the mean square; 0 in silence. */
  level() {
    if (!this.analyser) return 0;
    const samples = new Float32Array(this.analyser.fftSize);
    this.analyser.getFloatTimeDomainData(samples);
    return Math.sqrt(samples.reduce((sum, x) => sum + x * x, 0) / samples.length);
  }

  /**
   * Play notes.
   * @param {import("./music.js").Note[]} notes sorted by their start
   * @param {{from: number, to: number, stepsPerBeat: number, tempo: () => number, loop: () => boolean,
   *   onStep: (step: number) => void, onEnd: () => void}} options steps are fractions while a note sounds
   */
  async play(notes, options) {
    this.stop();
    const run = { notes, options, at: options.from, time: 0, next: 0, marks: [], timer: 0 };
    this.#run = run;
    await this.wake();
    if (this.#run !== run) return;
    run.time = this.context.currentTime + 0.04;
    run.next = notes.findIndex((note) => note.end > options.from);
    if (run.next < 0) run.next = notes.length;
    run.marks.push({ time: run.time, step: run.at });
    this.#look(run);
    run.timer = setInterval(() => this.#look(run), TICK);
    const follow = () => {
      if (this.#run !== run) return;
      options.onStep(this.#heard(run));
      requestAnimationFrame(follow);
    };
    requestAnimationFrame(follow);
  }

  stop() {
    const run = this.#run;
    if (!run) return;
    this.#run = null;
    clearInterval(run.timer);
    const now = this.context?.currentTime ?? 0;
    this.#sounding.forEach((tone) => tone.end(now));
    run.options.onEnd();
  }

  /** Sound one note at once, such as one that was drawn. */
  async preview(pitch, voice = 0) {
    await this.wake();
    if (!this.playing) this.#tone(pitch, voice, this.context.currentTime, 0.28, 0.7);
  }

  /** The step that is heard now. */
  #heard(run) {
    const now = this.context.currentTime - (this.context.outputLatency || 0);
    let mark = run.marks[0];
    for (const other of run.marks) if (other.time <= now) mark = other;
    run.marks = run.marks.filter((other) => other.time >= mark.time);
    return Math.min(run.options.to, Math.max(mark.step, mark.step + (now - mark.time) / this.#stepSeconds(run)));
  }

  #stepSeconds(run) { return 60 / run.options.tempo() / run.options.stepsPerBeat; }

  /** Schedule what begins in the next moments, step by step, so that the tempo can change on the way. */
  #look(run) {
    const { notes, options } = run;
    const horizon = this.context.currentTime + AHEAD;
    while (run.time < horizon) {
      if (run.at >= options.to) {
        if (!options.loop()) {
          if (this.context.currentTime > run.time) this.stop();
          return;
        }
        run.at = options.from;
        run.next = Math.max(0, notes.findIndex((note) => note.end > options.from));
      }
      const seconds = this.#stepSeconds(run);
      run.marks.push({ time: run.time, step: run.at });
      while (run.next < notes.length && notes[run.next].start <= run.at) {
        const note = notes[run.next++];
        const length = Math.min(note.end, options.to) - run.at;
        if (length > 0) this.#tone(note.pitch, note.voice, run.time, length * seconds);
      }
      run.at += 1;
      run.time += seconds;
    }
  }

  #tone(pitch, voice, time, seconds, strength = 1) {
    const { context } = this;
    const { wave, attack, decay, sustain, release, detune, bright } = instrument(this.sound);
    const hertz = frequency(pitch);
    const end = time + Math.max(seconds * 0.96, 0.05);
    const peak = 0.2 * strength * (1.25 - pitch / 200);
    const envelope = new GainNode(context, { gain: 0 });
    envelope.gain.setValueAtTime(0, time);
    envelope.gain.linearRampToValueAtTime(peak, time + attack);
    envelope.gain.setTargetAtTime(peak * sustain, time + attack, decay);
    envelope.gain.setTargetAtTime(0, end, release);
    const filter = new BiquadFilterNode(context, { type: "lowpass", Q: 0.4 });
    filter.frequency.setValueAtTime(Math.min(hertz * bright, 14_000), time);
    filter.frequency.setTargetAtTime(Math.min(hertz * bright * 0.35 + 300, 14_000), time, decay * 1.5);
    const periodicWave = this.#wave(wave);
    const sources = [-detune, detune].map((cents) => new OscillatorNode(context, { frequency: hertz, detune: cents, periodicWave }));
    sources.forEach((source) => source.connect(envelope));
    envelope.connect(filter).connect(this.#bus(voice));
    const last = end + release * 7;
    const tone = {
      end: (now) => {
        envelope.gain.cancelScheduledValues(now);
        envelope.gain.setTargetAtTime(0, now, 0.04);
        sources.forEach((source) => source.stop(now + 0.4));
      },
    };
    this.#sounding.add(tone);
    sources.forEach((source) => { source.start(time); source.stop(last); });
    sources[0].onended = () => { this.#sounding.delete(tone); filter.disconnect(); envelope.disconnect(); };
  }

  #build() {
    const context = new AudioContext({ latencyHint: "interactive" });
    this.context = context;
    this.master = new GainNode(context, { gain: this.#volume ** 2 });
    this.analyser = new AnalyserNode(context, { fftSize: 2048 });
    const compressor = new DynamicsCompressorNode(context, { threshold: -18, ratio: 3, attack: 0.01, release: 0.2 });
    this.dry = new GainNode(context, { gain: 0.85 });
    this.wet = new GainNode(context, { gain: 0.3 });
    const room = new ConvolverNode(context, { buffer: impulse(context) });
    this.dry.connect(compressor);
    this.wet.connect(room).connect(compressor);
    compressor.connect(this.master).connect(this.analyser).connect(context.destination);
  }

  #wave(partials) {
    if (!this.#waves.has(partials)) {
      const wave = this.context.createPeriodicWave(new Float32Array(partials.length), Float32Array.from(partials));
      this.#waves.set(partials, wave);
    }
    return this.#waves.get(partials);
  }

  /** Where the notes of a voice go: its place between left and right. */
  #bus(voice) {
    if (!this.#buses[voice]) {
      const place = new StereoPannerNode(this.context, { pan: PLACES[voice % PLACES.length] });
      place.connect(this.dry);
      place.connect(this.wet);
      this.#buses[voice] = place;
    }
    return this.#buses[voice];
  }
}

/** The answer of a room to a click: noise that dies away, darker the later. */
function impulse(context) {
  const length = Math.round(ROOM * context.sampleRate);
  const buffer = new AudioBuffer({ numberOfChannels: 2, length, sampleRate: context.sampleRate });
  for (let channel = 0; channel < 2; channel++) {
    const samples = buffer.getChannelData(channel);
    let last = 0;
    for (let i = 0; i < length; i++) {
      const share = i / length;
      last += (Math.random() * 2 - 1 - last) * (1 - 0.85 * share);
      samples[i] = last * (1 - share) ** 3.2;
    }
  }
  return buffer;
}
