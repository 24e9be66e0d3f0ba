/** The protocol against a model of the server, over connections that break anywhere. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Effect } from "../src/protocol/effects.js";
import { type Ending, lost } from "../src/protocol/endings.js";
import { SessionProtocol } from "../src/protocol/machine.js";
import type { Outgoing } from "../src/protocol/stream.js";
import { seeded } from "./driver.js";
import { goAway } from "./events.js";
import { ModelServer } from "./model-server.js";

/** A client and its servers, with everything in flight between them. */
class World {
  now = 50_000;
  readonly server = new ModelServer();
  readonly given: number[] = [];
  readonly sent: string[] = [];
  isOver = false;
  // It never gives up here; other tests check when it does.
  #client = new SessionProtocol({ newSession: {}, random: seeded(1), reconnectMs: 1e12 });
  #written: Outgoing[] = [];
  #connected = false;
  #closed = false;

  send(count: number): void {
    const { state } = this.#client;
    // As in the shell, nothing is sent before the session is open or after it was closed.
    for (
      let at = 0;
      at < count && state.sessionId !== "" && !this.#closed && !state.over;
      at += 1
    ) {
      const text = String(this.sent.length);
      this.sent.push(text);
      const data = new TextEncoder().encode(text);
      const isFinal = this.sent.length % 3 === 0;
      state.kept.add({ data, isFinal, speaker: "none", clientMs: 0 });
    }
  }

  close(): void {
    if (this.#client.state.sessionId !== "") {
      this.#closed = true;
      this.#client.state.closing = true;
    }
  }

  write(count: number): void {
    for (let at = 0; at < count; at += 1) {
      const frame = this.#client.take();
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
      this.#do(this.#client.onText(this.now, JSON.stringify({ events })));
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
      this.#drop(this.#client.ending(this.now, code, ""));
    }
  }

  connect(): void {
    if (!this.#connected && !this.#client.state.over) {
      this.#connected = true;
      this.#client.onConnected(this.now);
    }
  }

  /** A connection that cannot be opened. */
  connectInVain(): void {
    if (!this.#connected && !this.#client.state.over) {
      this.#client.onConnecting(this.now);
      this.#do(this.#client.onDisconnected(this.now, lost("unreachable")));
    }
  }

  timePasses(count: number): void {
    const end = this.now + 50 * count;
    for (let due = this.#client.nextDeadline(); due !== null && due <= end;) {
      this.now = Math.max(this.now, due);
      this.#do(this.#client.onTimer(this.now));
      due = this.#client.nextDeadline();
    }
    this.now = end;
  }

  /** Makes everything work from now on, closes the session, and checks that all has ended. */
  finish(): void {
    for (let round = 0; round < 200 && !this.isOver; round += 1) {
      this.connect();
      this.close();
      this.write(1000);
      this.serverReads(1000);
      this.server.acknowledge(1000);
      this.server.finishJobs(1000);
      this.clientReads(1000);
      this.write(1000);
      this.serverReads(1000);
      this.server.deliver();
      this.clientReads(1000);
      this.timePasses(10);
    }
    assert(this.isOver, "the session never ended");
    this.check();
    assert(this.server.wasClosed, "Close was forgotten");
    assert.deepEqual(this.server.chunks, this.sent);
    assert.deepEqual(this.given, [...Array(this.server.utterances).keys()]);
  }

  check(): void {
    const { state } = this.#client;
    assert.equal(state.kept.end, this.sent.length);
    if (!state.over) {
      assert(state.kept.first <= this.server.acked, "it forgot what was not acknowledged");
      assert(state.kept.bytes >= 0 && state.kept.heldBytes >= 0);
    }
    assert.deepEqual(this.server.chunks, this.sent.slice(0, this.server.chunks.length));
    assert.deepEqual(this.given, [...Array(this.given.length).keys()]);
    assert.equal(state.seen, this.given.length);
  }

  #drop(ending: Ending): void {
    this.#connected = false;
    this.#written = [];
    this.server.disconnect();
    this.#do(this.#client.onDisconnected(this.now, ending));
  }

  #do(effects: readonly Effect[]): void {
    for (const effect of effects) {
      if (effect.do === "give") {
        const { event } = effect;
        if (event.type === "result" || event.type === "missing") {
          this.given.push(event.index);
        }
      } else if (effect.do === "close") {
        if (effect.graceful) {
          this.write(10);
          this.serverReads(10);
        }
        this.#drop(effect.ending);
      } else if (effect.do === "over") {
        this.isOver = true;
      } else if (effect.do === "fail") {
        throw effect.error;
      } else {
        assert(effect.afterMs >= 0 && effect.afterMs <= 30_000);
      }
    }
  }
}

const STEPS: Record<string, (world: World, count: number) => void> = {
  send: (world, count) => {
    world.send(count);
  },
  write: (world, count) => {
    world.write(count);
  },
  serverReads: (world, count) => {
    world.serverReads(count);
  },
  serverAcks: (world, count) => {
    world.server.acknowledge(count);
  },
  serverHasResults: (world, count) => {
    world.server.finishJobs(count);
  },
  serverRepeats: (world, count) => {
    world.server.repeat(count);
  },
  clientReads: (world, count) => {
    world.clientReads(count);
  },
  connect: (world) => {
    world.connect();
  },
  connectInVain: (world) => {
    world.connectInVain();
  },
  timePasses: (world, count) => {
    world.timePasses(count);
  },
};
const ROUGH: Record<string, (world: World, count: number) => void> = {
  breaks: (world, count) => {
    world.breaks(count);
  },
  gatewayLeaves: (world, count) => {
    world.gatewayLeaves(count);
  },
};
const SMOOTH = Object.keys(STEPS);

/** Runs one session. Its steps are in the message if it fails. */
function play(seed: number, length: number, roughness: number): void {
  const random = seeded(seed);
  const one = <T>(of: readonly T[]): T => of[Math.floor(random() * of.length)] as T;
  const world = new World();
  const history: string[] = [];
  try {
    for (let at = 0; at < length; at += 1) {
      const isRough = random() < roughness;
      // The app closes some time before the end, and connections break before and after that.
      const closes = at > length * 0.75 && random() < 0.05;
      const name = closes ? "close" : isRough ? one(Object.keys(ROUGH)) : one(SMOOTH);
      const count = 1 + Math.floor(random() * 8);
      history.push(`${name} ${count}`);
      if (closes) {
        world.close();
      } else {
        (STEPS[name] ?? ROUGH[name])?.(world, count);
      }
      world.check();
    }
    world.finish();
  } catch (error) {
    throw new Error(`seed ${seed}: ${history.join(", ")}`, { cause: error });
  }
}

test("nothing is lost or given twice wherever connections break", () => {
  for (let seed = 0; seed < 1500; seed += 1) {
    play(seed, 10 + (seed % 60), 0.15);
  }
});

test("a long session survives any number of breaks", () => {
  for (let seed = 0; seed < 150; seed += 1) {
    play(10_000 + seed, 400, (seed % 10) / 100);
  }
});
