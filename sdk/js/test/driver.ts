/** Drives a session's protocol with a clock, in the place of a gateway. */

import assert from "node:assert/strict";

import type { Failure } from "../src/errors.js";
import type { SessionEvent } from "../src/events.js";
import type { Effect } from "../src/protocol/effects.js";
import { type Ending, lost } from "../src/protocol/endings.js";
import { SessionProtocol } from "../src/protocol/machine.js";
import type { Outgoing } from "../src/protocol/stream.js";
import type { Protocol } from "../src/session/link.js";
import { failed, opened } from "./events.js";

/** A small generator, so that failures can be repeated (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A protocol with a clock. The test plays the gateway. */
export class ProtocolDriver<E, F, P extends Protocol<E, F>> {
  now = 100_000;

  constructor(readonly protocol: P) {}

  get state(): P["state"] {
    return this.protocol.state;
  }

  say(...events: object[]): Effect<E>[] {
    return this.protocol.onText(this.now, JSON.stringify({ events }));
  }

  lose(ending: Ending = lost("broken")): Effect<E>[] {
    return this.protocol.onDisconnected(this.now, ending);
  }

  /** The gateway ends the connection with this code. */
  close(code: number, reason = ""): Effect<E>[] {
    return this.lose(this.protocol.ending(this.now, code, reason));
  }

  /** Answers the next connection with an error. */
  refuse(reason: string, retryAfterMs = 0): Effect<E>[] {
    this.protocol.onConnected(this.now);
    this.drain();
    return this.lose(closeOf(this.say(failed(reason, {}, retryAfterMs))).ending);
  }

  tick(ms: number): Effect<E>[] {
    this.now += ms;
    const due = this.protocol.nextDeadline();
    return due !== null && due <= this.now ? this.protocol.onTimer(this.now) : [];
  }

  drain(): F[] {
    const frames: F[] = [];
    for (let frame = this.protocol.take(); frame !== null; frame = this.protocol.take()) {
      frames.push(frame);
    }
    return frames;
  }
}

/** A session's protocol with a clock. */
export class Driver extends ProtocolDriver<SessionEvent, Outgoing, SessionProtocol> {
  constructor(reconnectMs: number | null = null) {
    const newSession = { tenant: "t" };
    super(new SessionProtocol({ newSession, random: seeded(1), reconnectMs }));
  }

  /** Opens a connection and the session. Returns what is written, Open first. */
  connect(limits: Record<string, number> = {}): string[] {
    this.protocol.onConnected(this.now);
    const heard = this.drain();
    this.say(opened(nextSeqOf(heard[0]), limits));
    return [...heard, ...this.drain()].map(kindOf);
  }

  /** Writes everything, and returns the kinds of it. */
  written(): string[] {
    return this.drain().map(kindOf);
  }

  send(text: string, isFinal = false): void {
    const data = new TextEncoder().encode(text);
    this.state.kept.add({ data, isFinal, speaker: "none", clientMs: 0 });
  }
}

/** The chunk with which a resume wants to go on. */
export function nextSeqOf(frame: Outgoing | undefined): number {
  const open = frame?.kind === "message" ? frame.message.open : undefined;
  return open !== undefined && "resume" in open ? open.resume.nextSeq : 0;
}

/** Such as "new", "resume", "audio 3 last", "close", "seen 2". */
export function kindOf(frame: Outgoing): string {
  if (frame.kind === "audio") {
    return `audio ${frame.chunk.seq}${frame.chunk.isFinal ? " last" : ""}`;
  }
  const { open, resultsSeen, ...rest } = frame.message;
  if (open !== undefined) {
    return "new" in open ? "new" : "resume";
  }
  const seen = resultsSeen === undefined ? [] : [`seen ${resultsSeen}`];
  return [...Object.keys(rest), ...seen].join(" ") || "empty";
}

export function given<E>(effects: readonly Effect<E>[]): E[] {
  return effects.flatMap((effect) => (effect.do === "give" ? [effect.event] : []));
}

export function givenTypes(effects: readonly Effect<{ readonly type: string }>[]): string[] {
  return given(effects).map((event) => event.type);
}

export function retryOf(effects: readonly Effect<unknown>[]): number | null {
  const [retry] = effects.flatMap((effect) => (effect.do === "retry" ? [effect.afterMs] : []));
  return retry ?? null;
}

export function errorOf(effects: readonly Effect<unknown>[]): Failure {
  const [error] = effects.flatMap((effect) => (effect.do === "fail" ? [effect.error] : []));
  assert(error !== undefined, `no failure in ${JSON.stringify(effects)}`);
  return error;
}

export function closeOf(effects: readonly Effect<unknown>[]): {
  ending: Ending;
  graceful: boolean;
} {
  const [close] = effects.filter((effect) => effect.do === "close");
  assert(close !== undefined, `the connection was kept: ${JSON.stringify(effects)}`);
  return close;
}
