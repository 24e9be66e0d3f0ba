// @ts-check
/** From a pressed button to audio in a session: hold to talk, and hands-free. */

import { announce, problemOf } from "./sessions.js";

/** @import { Audio } from "./audio.js" */
/** @import { RecordedBlock, Recording, Session } from "./sdk.js" */
/** @import { Live } from "./sessions.js" */
/** @import { Side, TalkingStore, TalkPhase } from "./types.js" */

/** Less is no word: the button was tapped, not held. Nothing is sent before. */
const SHORT_MS = 250;
/** How long the room echoes after speech was played. */
const ECHO_MS = 250;

/**
 * @typedef {Pick<Live, "number" | "languages" | "directionOf" | "opening">} Take a session that gets
 *   what is said.
 *
 * @typedef {object} SessionSource
 * @property {boolean} isReady whether somebody can speak.
 * @property {() => Take} begin begins to speak: the session does not end before `done`.
 * @property {(take: any) => void} done everything is sent, or cannot be.
 * @property {() => void} touch somebody does something.
 */

/**
 * @typedef {object} Listener
 * @property {() => void} onStart somebody wants to speak.
 * @property {() => void} onQuiet nobody speaks any more.
 * @property {() => boolean} isPlaying whether speech is being played.
 */

export class Talking {
  #store;
  #audio;
  #sessions;
  #listener;
  #takes = 0;
  /** The take of the button that is held, or of the half that listens; 0 for none. */
  #active = 0;
  /** @type {Recording | null} */
  #recording = null;
  /** Ends when the takes so far are sent: what was said first is sent first. */
  #sending = Promise.resolve();

  /**
   * @param {TalkingStore} store
   * @param {Audio} audio
   * @param {SessionSource} sessions
   * @param {Listener} listener
   */
  constructor(store, audio, sessions, listener) {
    this.#store = store;
    this.#audio = audio;
    this.#sessions = sessions;
    this.#listener = listener;
  }

  /** Whether somebody speaks, so that nothing must be played. */
  get hears() {
    const phase = this.#store.state.talk?.phase;
    return phase === "preparing" || phase === "recording" || phase === "hearing";
  }

  /**
   * A button is pressed: records until `end`.
   *
   * @param {Side} side
   */
  async hold(side) {
    const take = this.#begin(side);
    if (take === 0) {
      return;
    }
    const recording = await this.#record(take, {});
    if (recording === null) {
      this.#tooEarly(take, side);
      return;
    }
    const live = this.#sessions.begin();
    const { number: session, languages } = live;
    this.#phase(side, "recording");
    this.#store.dispatch({ type: "voice-start", session, take, side, languages });
    await this.#inTurn(take, (turn) => this.#sendHeld(recording, { live, take, side, turn }));
    this.#sessions.done(live);
    this.#finish(take);
  }

  /**
   * Sends after the takes before have been sent.
   *
   * @param {number} take
   * @param {(turn: Promise<void>) => Promise<void>} send
   */
  async #inTurn(take, send) {
    const sent = send(this.#sending).catch((error) => this.#failed(error, take));
    this.#sending = sent;
    await sent;
  }

  /**
   * Hands-free: a half begins to listen, or stops.
   *
   * @param {Side} side
   */
  async toggle(side) {
    const before = this.#store.state.talk;
    this.end();
    if (before?.side !== side) {
      await this.#listen(side);
    }
  }

  /** The button is released, or nobody shall be heard any more. What was said is still sent. */
  end() {
    if (this.#active !== 0) {
      this.#finish(this.#active);
    }
  }

  /** Speech is being played, and must not be heard. */
  pause() {
    if (this.#store.state.talk?.phase === "listening") {
      this.#recording?.stop();
    }
  }

  /**
   * @param {Side} side
   * @returns {number} the new take; 0 if this half cannot talk now.
   */
  #begin(side) {
    const { talk } = this.#store.state;
    if (talk !== null) {
      if (talk.side !== side) {
        this.#store.dispatch({ type: "hint", side, hint: "hint.other" });
      }
      return 0;
    }
    if (!this.#sessions.isReady) {
      return 0;
    }
    this.#audio.unlock();
    this.#sessions.touch();
    this.#listener.onStart();
    this.#takes += 1;
    this.#active = this.#takes;
    this.#store.dispatch({ type: "problem", problem: null });
    this.#phase(side, "preparing");
    return this.#active;
  }

  /**
   * @param {Side} side
   * @param {TalkPhase} phase
   */
  #phase(side, phase) {
    this.#store.dispatch({ type: "talk", talk: { side, phase } });
  }

  /**
   * @param {number} take
   * @param {{ voiceActivity?: boolean }} options
   * @returns {Promise<Recording | null>} null if the microphone cannot be used, or it is too late.
   */
  async #record(take, options) {
    try {
      const microphone = await this.#audio.microphone();
      if (this.#active !== take) {
        return null;
      }
      this.#recording = microphone.record(options);
      return this.#recording;
    } catch (error) {
      this.#audio.closeMicrophone();
      this.#store.dispatch({ type: "problem", problem: problemOf(error) });
      this.#finish(take);
      return null;
    }
  }

  /**
   * The button was released before the microphone was ready, for example to allow its use.
   *
   * @param {number} take
   * @param {Side} side
   */
  #tooEarly(take, side) {
    const { talk, problem } = this.#store.state;
    if (this.#active !== take && talk === null && problem === null) {
      this.#store.dispatch({ type: "hint", side, hint: "hint.ready" });
    }
  }

  /**
   * @param {Recording} recording
   * @param {{ live: Take, take: number, side: Side, turn: Promise<void> }} which
   */
  async #sendHeld(recording, { live, take, side, turn }) {
    /** @type {RecordedBlock[]} */
    let early = [];
    let samples = 0;
    /** @type {Session | null} */
    let session = null;
    try {
      for await (const block of recording) {
        samples += block.samples.length;
        early.push(block);
        if (samples * 1000 < SHORT_MS * 16_000) {
          continue;
        }
        // The recording goes on meanwhile, and keeps what is said.
        await turn;
        session ??= await live.opening;
        for (const each of early) {
          await this.#send(session, live, side, each);
        }
        early = [];
      }
    } catch (error) {
      // If it was the microphone, what was said before is translated.
      session?.finish().catch(() => undefined);
      throw error;
    }
    if (session === null) {
      this.#store.dispatch({ type: "take-dropped", take });
      this.#store.dispatch({ type: "hint", side, hint: "hint.short" });
      return;
    }
    await session.finish();
    const direction = live.directionOf(side);
    const { sessionId } = session;
    announce("sent", { sessionId, direction, samples: 0, isFinal: true, recordedAt: Date.now() });
    this.#settle(session, take);
  }

  /**
   * @param {Session} session
   * @param {Take} live
   * @param {Side} side
   * @param {RecordedBlock} block
   */
  async #send(session, live, side, block) {
    const direction = live.directionOf(side);
    const { samples, isFinal, recordedAt } = block;
    const when = { isFinal, recordedAt };
    await session.send(samples, direction === undefined ? when : { direction, ...when });
    const { sessionId } = session;
    announce("sent", { sessionId, direction, samples: samples.length, isFinal, recordedAt });
  }

  /**
   * When the scheduler has everything, utterances that it has not mentioned were none.
   *
   * @param {Session} session
   * @param {number} take
   */
  #settle(session, take) {
    session.drained().then(
      () => {
        // After the events that came with the last acknowledgement.
        setTimeout(() => this.#store.dispatch({ type: "take-settled", take }), 0);
      },
      () => undefined,
    );
  }

  /** @param {Side} side */
  async #listen(side) {
    const take = this.#begin(side);
    while (take !== 0 && this.#active === take) {
      if (this.#listener.isPlaying()) {
        this.#phase(side, "paused");
        await new Promise((resolve) => setTimeout(resolve, ECHO_MS));
        continue;
      }
      const recording = await this.#record(take, { voiceActivity: true });
      if (recording === null) {
        break;
      }
      this.#phase(side, "listening");
      await this.#inTurn(0, (turn) => this.#sendHeard(recording, side, take, turn));
    }
    this.#finish(take);
  }

  /**
   * Sends what is said until the recording ends.
   *
   * @param {Recording} recording
   * @param {Side} side
   * @param {number} listening
   * @param {Promise<void>} turn
   */
  async #sendHeard(recording, side, listening, turn) {
    let take = 0;
    /** @type {Take | null} */
    let live = null;
    try {
      for await (const block of recording) {
        if (live === null) {
          this.#takes += 1;
          take = this.#takes;
          live = this.#sessions.begin();
          this.#heard(live, take, side, listening);
        }
        await turn;
        const session = await live.opening;
        await this.#send(session, live, side, block);
        if (block.isFinal) {
          this.#store.dispatch({ type: "voice-end", session: live.number, take });
          this.#settle(session, take);
          this.#sessions.done(live);
          live = null;
          if (this.#active === listening) {
            this.#phase(side, "listening");
          }
          this.#listener.onQuiet();
        }
      }
    } catch (error) {
      this.#failed(error, take);
      this.#finish(listening);
    } finally {
      if (live !== null) {
        this.#sessions.done(live);
      }
    }
  }

  /**
   * @param {Take} live
   * @param {number} take
   * @param {Side} side
   * @param {number} listening
   */
  #heard({ number: session, languages }, take, side, listening) {
    if (this.#active === listening) {
      this.#phase(side, "hearing");
    }
    this.#store.dispatch({ type: "voice-start", session, take, side, languages });
  }

  /**
   * @param {unknown} error
   * @param {number} take
   */
  #failed(error, take) {
    this.#store.dispatch({ type: "take-failed", take, reason: "NOT_SENT" });
    const { name } = error instanceof Error ? error : { name: "" };
    if (name === "MicrophoneError") {
      this.#audio.closeMicrophone();
    }
    // What happens to sessions is reported by those.
    if (name !== "SessionLostError" && this.#store.state.problem === null) {
      this.#store.dispatch({ type: "problem", problem: problemOf(error) });
    }
  }

  /** @param {number} take */
  #finish(take) {
    this.#sessions.touch();
    this.#store.dispatch({ type: "voice-end", session: 0, take });
    if (this.#active === take) {
      this.#active = 0;
      this.#recording?.stop();
      this.#recording = null;
      this.#store.dispatch({ type: "talk", talk: null });
      this.#listener.onQuiet();
    }
  }
}
