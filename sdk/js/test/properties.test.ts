/** The protocol against a model of the server, over connections that break anywhere. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { SessionEvent } from "../src/events.js";
import { SessionProtocol } from "../src/protocol/machine.js";
import type { Outgoing } from "../src/protocol/stream.js";
import { seeded } from "./driver.js";
import { ModelServer } from "./model-server.js";
import { commonSteps, play, World } from "./world.js";

/** A session and its servers. */
class Conversation {
  readonly given: number[] = [];
  readonly sent: string[] = [];
  readonly server = new ModelServer();
  readonly world: World<SessionEvent, Outgoing, SessionProtocol, ModelServer>;
  #closed = false;

  constructor() {
    // It never gives up here; other tests check when it does.
    const client = new SessionProtocol({ newSession: {}, random: seeded(1), reconnectMs: 1e12 });
    this.world = new World(client, this.server, (event) => {
      if (event.type === "result" || event.type === "missing") {
        this.given.push(event.index);
      }
    });
  }

  send(count: number): void {
    const { state } = this.world.client;
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
    const { state } = this.world.client;
    if (state.sessionId !== "") {
      this.#closed = true;
      state.closing = true;
    }
  }

  /** Makes everything work from now on, closes the session, and checks that all has ended. */
  finish(): void {
    const { world, server } = this;
    for (let round = 0; round < 200 && !world.isOver; round += 1) {
      world.connect();
      this.close();
      world.write(1000);
      world.serverReads(1000);
      server.acknowledge(1000);
      server.finishJobs(1000);
      world.clientReads(1000);
      world.write(1000);
      world.serverReads(1000);
      server.deliver();
      world.clientReads(1000);
      world.timePasses(10);
    }
    assert(world.isOver, "the session never ended");
    this.check();
    assert(server.wasClosed, "Close was forgotten");
    assert.deepEqual(server.chunks, this.sent);
    assert.deepEqual(this.given, [...Array(server.utterances).keys()]);
  }

  check(): void {
    const { state } = this.world.client;
    assert.equal(state.kept.end, this.sent.length);
    if (!state.over) {
      assert(state.kept.first <= this.server.acked, "it forgot what was not acknowledged");
      assert(state.kept.bytes >= 0 && state.kept.heldBytes >= 0);
    }
    assert.deepEqual(this.server.chunks, this.sent.slice(0, this.server.chunks.length));
    assert.deepEqual(this.given, [...Array(this.given.length).keys()]);
    assert.equal(state.seen, this.given.length);
  }
}

function converse(seed: number, length: number, roughness: number): void {
  const conversation = new Conversation();
  const { server } = conversation;
  const { smooth, rough } = commonSteps(conversation.world);
  let played = 0;
  play({
    seed,
    length,
    roughness,
    smooth: {
      ...smooth,
      send: (count) => {
        conversation.send(count);
      },
      serverAcks: (count) => {
        server.acknowledge(count);
      },
      serverHasResults: (count) => {
        server.finishJobs(count);
      },
      serverRepeats: (count) => {
        server.repeat(count);
      },
    },
    rough: {
      ...rough,
      // The app closes some time before the end, and connections break before and after that.
      closes: () => {
        if (played > length * 0.75) {
          conversation.close();
        }
      },
    },
    check: () => {
      played += 1;
      conversation.check();
    },
    finish: () => {
      conversation.finish();
    },
  });
}

test("nothing is lost or given twice wherever connections break", () => {
  for (let seed = 0; seed < 1500; seed += 1) {
    converse(seed, 10 + (seed % 60), 0.2);
  }
});

test("a long session survives any number of breaks", () => {
  for (let seed = 0; seed < 150; seed += 1) {
    converse(10_000 + seed, 400, (seed % 10) / 70);
  }
});
