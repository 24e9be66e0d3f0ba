/** A client and its servers, with everything in flight between them, for tests of properties. */

import assert from "node:assert/strict";

import type { Effect } from "../src/protocol/effects.js";
import { type Ending, lost } from "../src/protocol/endings.js";
import type { Protocol } from "../src/session/link.js";
import { seeded } from "./driver.js";
import { goAway } from "./events.js";

/** A model of all servers. It hears frames `F`. */
export interface Model<F> {
  /** Events on their way to the client. */
  said: object[];
  readonly isOpen: boolean;
  hear(frame: F): void;
  disconnect(): void;
}

/** Connections may break anywhere, and whatever is in flight then is lost. */
export class World<E, F, P extends Protocol<E, F>, M extends Model<F>> {
  now = 50_000;
  isOver = false;
  #written: F[] = [];
  #connected = false;

  /** @param onEvent is called with each event for the app. */
  constructor(
    readonly client: P,
    readonly server: M,
    private readonly onEvent: (event: E) => void,
  ) {}

  write(count: number): void {
    for (let at = 0; at < count; at += 1) {
      const frame = this.client.take();
      if (frame === null) {
        return;
      }
      this.#written.push(frame);
    }
  }

  serverReads(count: number): void {
    for (const frame of this.#written.splice(0, count)) {
      this.server.hear(frame);
    }
  }

  clientReads(count: number): void {
    const events = this.server.said.splice(0, count);
    if (this.#connected) {
      this.do(this.client.onText(this.now, JSON.stringify({ events })));
    }
  }

  gatewayLeaves(count: number): void {
    if (this.server.isOpen) {
      this.server.said.push(goAway(100 * count));
    }
  }

  breaks(count: number): void {
    if (this.#connected) {
      const code = [1001, 1006, 1011, 1013][count % 4] ?? 1006;
      this.#drop(this.client.ending(this.now, code, ""));
    }
  }

  connect(): void {
    if (!this.#connected && !this.client.state.over) {
      this.#connected = true;
      this.client.onConnected(this.now);
    }
  }

  /** A connection that cannot be opened. */
  connectInVain(): void {
    if (!this.#connected && !this.client.state.over) {
      this.client.onConnecting(this.now);
      this.do(this.client.onDisconnected(this.now, lost("unreachable")));
    }
  }

  timePasses(count: number): void {
    const end = this.now + 50 * count;
    for (let due = this.client.nextDeadline(); due !== null && due <= end;) {
      this.now = Math.max(this.now, due);
      this.do(this.client.onTimer(this.now));
      due = this.client.nextDeadline();
    }
    this.now = end;
  }

  do(effects: readonly Effect<E>[]): void {
    for (const effect of effects) {
      switch (effect.do) {
        case "give":
          this.onEvent(effect.event);
          break;
        case "close":
          if (effect.graceful) {
            this.write(10);
            this.serverReads(10);
          }
          this.#drop(effect.ending);
          break;
        case "over":
          this.isOver = true;
          break;
        case "fail":
          throw effect.error;
        case "retry":
          assert(effect.afterMs >= 0 && effect.afterMs <= 30_000);
      }
    }
  }

  #drop(ending: Ending): void {
    this.#connected = false;
    this.#written = [];
    this.server.disconnect();
    this.do(this.client.onDisconnected(this.now, ending));
  }
}

/** Something that happens, more or less of it. */
export type Step = (count: number) => void;
export type Steps = Readonly<Record<string, Step>>;

/** What happens to every client. */
export function commonSteps<E, F>(
  world: World<E, F, Protocol<E, F>, Model<F>>,
): {
  smooth: Steps;
  rough: Steps;
} {
  return {
    smooth: {
      write: (count) => {
        world.write(count);
      },
      serverReads: (count) => {
        world.serverReads(count);
      },
      clientReads: (count) => {
        world.clientReads(count);
      },
      connect: () => {
        world.connect();
      },
      connectInVain: () => {
        world.connectInVain();
      },
      timePasses: (count) => {
        world.timePasses(count);
      },
    },
    rough: {
      breaks: (count) => {
        world.breaks(count);
      },
      gatewayLeaves: (count) => {
        world.gatewayLeaves(count);
      },
    },
  };
}

export interface Play {
  readonly seed: number;
  readonly length: number;
  /** How often something rough happens, from 0 to 1. */
  readonly roughness: number;
  readonly smooth: Steps;
  readonly rough: Steps;
  /** Called after each step, and at the end. */
  readonly check: () => void;
  readonly finish: () => void;
}

/** Plays random steps. They are in the message if something fails. */
export function play({ seed, length, roughness, smooth, rough, check, finish }: Play): void {
  const random = seeded(seed);
  const history: string[] = [];
  try {
    for (let at = 0; at < length; at += 1) {
      const steps = Object.entries(random() < roughness ? rough : smooth);
      const [name, step] = steps[Math.floor(random() * steps.length)] ?? ["", () => undefined];
      const count = 1 + Math.floor(random() * 8);
      history.push(`${name} ${count}`);
      step(count);
      check();
    }
    finish();
  } catch (error) {
    throw new Error(`seed ${seed}: ${String(error)}: ${history.join(", ")}`, { cause: error });
  }
}
