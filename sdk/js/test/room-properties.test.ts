/** The listener's protocol against a model of a room, over connections that break anywhere. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { RoomEvent } from "../src/index.js";
import type { ListenerProtocol } from "../src/room/protocol/machine.js";
import type { ListenerMessage } from "../src/room/protocol/stream.js";
import { ModelRoom } from "./model-room.js";
import { listenerProtocol, SPANISH } from "./room-driver.js";
import { commonSteps, play, World } from "./world.js";

const LANGUAGES = ["es", "fr", "de", "xx"];

/** A listener and its room. */
class Lecture {
  /** Indexes that the app was told of, as said or as not said. */
  readonly given: number[] = [];
  readonly room: ModelRoom;
  readonly world: World<RoomEvent, ListenerMessage, ListenerProtocol, ModelRoom>;
  #checked = 0;

  constructor(kept: number) {
    this.room = new ModelRoom(kept);
    // It never gives up here; other tests check when it does.
    this.world = new World(listenerProtocol(1e12), this.room, (event) => {
      this.#give(event);
    });
  }

  #give(event: RoomEvent): void {
    if (event.type === "said") {
      this.given.push(event.roomIndex);
    } else if (event.type === "not-said") {
      for (let index = event.roomIndex; index < event.untilIndex; index += 1) {
        this.given.push(index);
      }
    }
  }

  change(count: number): void {
    const language = LANGUAGES[count % LANGUAGES.length] ?? "es";
    this.world.client.state.change({ ...SPANISH, language });
  }

  speak(count: number): void {
    for (let at = 0; at < count; at += 1) {
      this.room.speak(LANGUAGES.slice(0, (count + at) % 4));
    }
  }

  /** Makes everything work from now on, and checks that the listener has everything. */
  finish(): void {
    const { room, world } = this;
    room.skips = 0;
    for (let round = 0; round < 20; round += 1) {
      world.connect();
      world.write(1000);
      world.serverReads(1000);
      room.speak([]);
      room.deliver(1000);
      world.clientReads(1000);
      world.timePasses(10);
    }
    const { state } = world.client;
    assert(state.isSettled, "a change was forgotten");
    assert.equal(state.chain.position, room.next, "it does not have everything");
    world.do(world.client.leave());
    assert(world.isOver);
    assert(room.wasLeft, "LeaveRoom was forgotten");
    this.check();
    const liveFrom = room.liveFrom ?? 0;
    const live = this.given.filter((index) => index >= liveFrom);
    const wanted = Array.from({ length: room.next - liveFrom }, (_, at) => liveFrom + at);
    assert.deepEqual(live, wanted, "an utterance was lost");
  }

  check(): void {
    const { state } = this.world.client;
    for (; this.#checked < this.given.length; this.#checked += 1) {
      const before = this.given[this.#checked - 1] ?? -1;
      assert((this.given[this.#checked] ?? -1) > before, "twice, or out of order");
    }
    assert.equal(state.said + state.notSaid, this.given.length);
    assert(state.chain.position <= this.room.next);
  }
}

/** @param skips whether the server may skip something, which the listener has to notice. */
function attend(seed: number, length: number, roughness: number, skips = false): void {
  // A server that forgets cannot be asked again for what it has skipped.
  const lecture = new Lecture(skips ? 1e6 : 12);
  const { room } = lecture;
  const { smooth, rough } = commonSteps(lecture.world);
  play({
    seed,
    length,
    roughness,
    smooth: {
      ...smooth,
      speak: (count) => {
        lecture.speak(count);
      },
      roomDelivers: (count) => {
        room.deliver(count);
      },
    },
    rough: {
      ...rough,
      change: (count) => {
        lecture.change(count);
      },
      roomRepeats: (count) => {
        room.repeat(count);
      },
      ...(skips ? { roomSkips: () => (room.skips += 1) } : {}),
    },
    check: () => {
      lecture.check();
    },
    finish: () => {
      lecture.finish();
    },
  });
}

test("a listener gets everything once and in order wherever connections break", () => {
  for (let seed = 0; seed < 1000; seed += 1) {
    attend(seed, 10 + (seed % 60), 0.2);
  }
});

test("a listener survives any number of breaks and changes", () => {
  for (let seed = 0; seed < 100; seed += 1) {
    attend(10_000 + seed, 400, (seed % 10) / 20);
  }
});

test("a listener gets what the server has skipped", () => {
  for (let seed = 0; seed < 500; seed += 1) {
    attend(20_000 + seed, 10 + (seed % 120), 0.2, true);
  }
});
