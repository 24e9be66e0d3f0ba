/** Timers of the SDK: none outlives its connection, and none is too long for setTimeout. */

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";

import { Socket, type WebSocketLike } from "../src/session/socket.js";
import { closed, goAway } from "./events.js";
import { openAt, peers } from "./peer.js";

interface Timers {
  /** The delays of all timers that the SDK has set. */
  readonly delays: number[];
  /** The delays of those that have neither fired nor been cleared. */
  pending(): number[];
}

/** Watches the timers that the SDK sets, not those of libraries and tests. */
function watchTimers(context: TestContext): Timers {
  const { setTimeout: set, clearTimeout: clear } = globalThis;
  const delays: number[] = [];
  const pending = new Map<unknown, number>();
  const watched = (callback: () => void, delay = 0): unknown => {
    if (!(new Error().stack ?? "").includes("/src/")) {
      return set(callback, delay);
    }
    delays.push(delay);
    const timer = set(() => {
      pending.delete(timer);
      callback();
    }, delay);
    pending.set(timer, delay);
    return timer;
  };
  Object.assign(globalThis, {
    setTimeout: watched,
    clearTimeout: (timer: NodeJS.Timeout | undefined) => {
      pending.delete(timer);
      clear(timer);
    },
  });
  context.after(() => {
    Object.assign(globalThis, { setTimeout: set, clearTimeout: clear });
  });
  return { delays, pending: () => [...pending.values()] };
}

test("nothing keeps Node.js running after a session was closed", async (context) => {
  const timers = watchTimers(context);
  const [peer] = await peers(context, 1);
  assert(peer);
  const { session, socket } = await openAt(context, peer, {}, { silenceMs: 3000 });
  const closing = session.close();
  assert.deepEqual(await socket.text(), { close: {} });
  socket.say(closed());
  await closing;
  assert(timers.delays.includes(1000), "the connection was not flushed");
  assert.deepEqual(timers.pending(), []);
});

test("a gateway that says GoAway for weeks ahead is not left at once", async (context) => {
  const timers = watchTimers(context);
  const [peer] = await peers(context, 1);
  assert(peer);
  const { session, socket } = await openAt(context, peer);
  socket.say(goAway(3_000_000_000));
  // The answer to what is sent next shows that the gateway's words have arrived.
  await session.send(new Int16Array(1600));
  await socket.audio();
  socket.say({ audioAck: { nextSeq: "1" } });
  await session.drained();
  assert(Math.max(...timers.delays) > 2 ** 30, "GoAway was not noticed");
  assert(Math.max(...timers.delays) < 2 ** 31, `${Math.max(...timers.delays)} ms`);
  assert(session.connected);
});

/** A WebSocket whose events the test makes. */
function fakeSocket(readyState = 1): WebSocketLike {
  const socket = { binaryType: "", protocol: "", bufferedAmount: 0, send: ignore, close: ignore };
  const handlers = { onopen: null, onmessage: null, onclose: null, onerror: null };
  return { ...socket, ...handlers, readyState };
}

function ignore(): void {
  // Nothing is connected.
}

type Handler = ((event: unknown) => void) | null;

for (const [name, then] of [
  [
    "was abandoned",
    (socket: Socket): void => {
      socket.abandon();
    },
  ],
  [
    "is closed",
    (_: Socket, from: WebSocketLike): void => {
      (from.onclose as Handler)?.({ code: 1002, reason: "" });
    },
  ],
] as const) {
  test(`a connection that ${name} after an error does not end again later`, (context) => {
    context.mock.timers.enable({ apis: ["setTimeout"] });
    const closes: number[] = [];
    const fake = fakeSocket();
    const socket = new Socket(fake, {
      onText: ignore,
      onBinary: ignore,
      onClosed: (code) => closes.push(code),
    });
    (fake.onerror as Handler)?.({});
    then(socket, fake);
    const before = closes.length;
    context.mock.timers.tick(10_000);
    assert.equal(closes.length, before);
  });
}

test("a connection that ends with an error and no close event is over", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const closes: number[] = [];
  const fake = fakeSocket();
  new Socket(fake, { onText: ignore, onBinary: ignore, onClosed: (code) => closes.push(code) });
  (fake.onerror as Handler)?.({});
  (fake.onerror as Handler)?.({});
  context.mock.timers.tick(10_000);
  assert.deepEqual(closes, [1006]);
});

test("nothing is sent to a connection that is about to end", () => {
  const sent: unknown[] = [];
  for (const readyState of [0, 1, 2, 3]) {
    const fake = { ...fakeSocket(readyState), send: () => sent.push(readyState) };
    new Socket(fake, { onText: ignore, onBinary: ignore, onClosed: ignore }).send("{}");
  }
  assert.deepEqual(sent, [1]);
});

test("an invalid frame ends one connection, not the next one", async (context) => {
  const timers = watchTimers(context);
  // The next connection is there before the time is up in which a close event may follow.
  context.mock.method(Math, "random", () => 0.01);
  const [peer] = await peers(context, 1);
  assert(peer);
  const { session, socket } = await openAt(context, peer);
  const events = session.events();
  // A reserved opcode.
  (socket.socket as unknown as { _socket: { write(data: Buffer): void } })._socket.write(
    Buffer.from([0x8f, 0]),
  );
  const next = await peer.sockets.next();
  assert((await next.opens()).resume);
  assert.equal((await events.next()).value?.type, "reconnecting");
  assert.equal((await events.next()).value?.type, "resumed");
  assert.deepEqual(timers.pending(), []);
});
