/** Sessions over real sockets, against a gateway that the test controls. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  BufferFullError,
  type Outcome,
  Session,
  SessionLostError,
  SessionRefusedError,
  SessionUnavailableError,
} from "../src/index.js";
import { ack, closed, failed, goAway, result, speechFrame } from "./events.js";
import { ClientSocket, openAt, peers, type PeerSocket } from "./peer.js";

const FORMAT = { encoding: "PCM_S16LE", sampleRateHz: 16_000, channels: 1 };

async function collect(outcomes: AsyncIterable<Outcome>): Promise<number[]> {
  const indexes: number[] = [];
  for await (const outcome of outcomes) {
    indexes.push(outcome.index);
  }
  return indexes;
}

describe("a session", () => {
  test("sends audio, gets results with speech, and closes", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { session, socket } = await openAt(context, peer);
    const samples = Int16Array.from({ length: 2400 }, (_, at) => at);
    await session.send(samples, { isFinal: true, recordedAt: 1_000_000 });
    const first = await socket.audio();
    const second = await socket.audio();
    assert.deepEqual([first.seq, first.flags, first.data.length], [0, 0, 3200]);
    assert.deepEqual([second.seq, second.flags, second.data.length], [1, 1, 1600]);
    assert.deepEqual([first.clientMs, second.clientMs], [999_950, 1_000_000]);
    const closing = session.close();
    assert.deepEqual(await socket.text(), { close: {} });
    socket.socket.send(speechFrame(0, [5, 6]));
    socket.say(ack(2), result(0), closed(1));
    await closing;
    assert.deepEqual(await socket.text(), { resultsSeen: 1 });
    assert.equal(await socket.gone, 1000);
    const results: Outcome[] = [];
    for await (const each of session.results()) {
      results.push(each);
    }
    assert.equal(results.length, 1);
    assert(results[0]?.type === "result");
    assert.deepEqual([...results[0].speech], [5, 6]);
    assert(session.ended);
  });

  test("asks for what the options say", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const opening = Session.open({
      addresses: peer.address,
      languages: { a: "en", b: "zh-hant" },
      requireTts: true,
      pauseDetection: "voice-activity",
      WebSocket: ClientSocket,
    });
    const socket = await peer.sockets.next();
    const asked = (await socket.opens()).new as Record<string, unknown>;
    assert.deepEqual(asked.conversation, { a: "en", b: "zh-hant" });
    assert.deepEqual(asked.audioFormat, { ...FORMAT, encoding: "AUDIO_ENCODING_PCM_S16LE" });
    const session = await opening;
    context.after(() => {
      session.abort();
    });
    await session.send(new Int16Array(10), { direction: { src: "zh-Hant", tgt: "en" } });
    assert.equal((await socket.audio()).flags, 2 << 1);
    await session.send(new Int16Array(10), { direction: { src: "en", tgt: "zh-hant" } });
    assert.equal((await socket.audio()).flags, 1 << 1);
    await assert.rejects(session.send(new Int16Array(10)), /direction: is required/);
  });

  test("resumes elsewhere after a break, and nothing is lost", async (context) => {
    const [first, second] = await peers(context, 2);
    assert(first && second);
    second.sockets = first.sockets;
    const opening = Session.open({
      addresses: [first.address, second.address],
      languages: { src: "en", tgt: "es" },
      WebSocket: ClientSocket,
    });
    const socket = await first.sockets.next();
    await socket.opens();
    const session = await opening;
    context.after(() => {
      session.abort();
    });
    const indexes = collect(session.results());
    await session.send(new Int16Array(1600));
    await socket.audio();
    socket.say(result(0));
    await session.send(new Int16Array(1600));
    await socket.audio();
    socket.socket.terminate();
    await session.send(new Int16Array(1600), { isFinal: true });
    const next = await first.sockets.next();
    assert.notEqual(next.request.headers.host, socket.request.headers.host);
    const asked = (await next.opens()).resume as Record<string, unknown>;
    assert.deepEqual([asked.resultsSeen, asked.nextSeq, asked.tries], [1, 0, 1]);
    assert.deepEqual([(await next.audio()).seq, (await next.audio()).seq], [0, 1]);
    assert.deepEqual((await next.audio()).flags, 1);
    next.say(result(0), result(1), ack(3));
    const closing = session.close();
    assert.deepEqual((await next.text()).close, {});
    next.say(closed(2));
    await closing;
    assert.deepEqual(await indexes, [0, 1]);
    assert.equal(session.counts.repeated, 1);
  });

  test("goes elsewhere when asked to, and says that it was away", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { session, socket } = await openAt(context, peer);
    const events = session.events();
    socket.say(goAway(10));
    const next = await peer.sockets.next();
    assert((await next.opens()).resume);
    assert.equal((await events.next()).value?.type, "reconnecting");
    assert.equal((await events.next()).value?.type, "resumed");
  });

  test("leaves a gateway that is silent", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { socket } = await openAt(context, peer, {}, { silenceMs: 300 });
    assert.deepEqual(await socket.text(), {});
    const next = await peer.sockets.next();
    assert((await next.opens()).resume);
  });
});

describe("tokens", () => {
  test("are offered as a subprotocol and renewed when they expire", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    let asked = 0;
    const token = (): Promise<string> => Promise.resolve(`token-${(asked += 1)}`);
    const { socket } = await openAt(context, peer, { token });
    const offered = (of: PeerSocket): string[] =>
      (of.request.headers["sec-websocket-protocol"] ?? "").split(/, */);
    assert.deepEqual(offered(socket), ["lingua.v1", "bearer.token-1"]);
    socket.say(failed("UNAUTHENTICATED"));
    socket.socket.close(4401);
    const next = await peer.sockets.next();
    assert.deepEqual(offered(next), ["lingua.v1", "bearer.token-2"]);
    assert((await next.opens()).resume);
  });

  test("that expired while away are renewed, although a browser cannot see why", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    let asked = 0;
    const { socket } = await openAt(context, peer, { token: () => `token-${(asked += 1)}` });
    peer.refuse = (token) =>
      token === "token-3" ? null : { status: 401, reason: "UNAUTHENTICATED" };
    socket.socket.terminate();
    const next = await peer.sockets.next();
    assert((await next.opens()).resume);
    assert.equal(asked, 3);
  });

  test("that were refused are named to the function, which may have had none", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    peer.refuse = (token) => (token === "new" ? null : { status: 401, reason: "UNAUTHENTICATED" });
    const told: (string | null)[] = [];
    const token = (refused: string | null): string => {
      told.push(refused);
      return refused === null ? "" : "new";
    };
    const { socket } = await openAt(context, peer, { token });
    socket.socket.terminate();
    assert((await (await peer.sockets.next()).opens()).resume);
    // A token that was accepted is not named, and may be used again.
    assert.deepEqual(told.slice(0, 2), [null, ""]);
    assert.equal(told[2], null);
  });

  test("that are refused again and again end the session", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    peer.refuse = () => ({ status: 401, reason: "UNAUTHENTICATED" });
    const languages = { src: "en", tgt: "es" };
    for (const token of ["fixed", () => "the-same", () => `t-${Math.random()}`]) {
      const opening = Session.open({
        addresses: peer.address,
        languages,
        token,
        WebSocket: ClientSocket,
      });
      await assert.rejects(opening, (error) => {
        assert(error instanceof SessionRefusedError);
        const isSame = typeof token === "function" && token() === token();
        assert.equal(error.message.includes("the same token again"), isSame);
        return error.reason === "UNAUTHENTICATED";
      });
    }
  });

  test("that cannot be fetched are reported with their cause, and never shown", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const cause = new Error("secret");
    const opening = Session.open({
      addresses: peer.address,
      languages: { src: "en", tgt: "es" },
      reconnectMs: 50,
      token: () => Promise.reject(cause),
      WebSocket: ClientSocket,
    });
    await assert.rejects(opening, (error) => {
      assert(error instanceof SessionUnavailableError);
      assert.doesNotMatch(error.message, /secret/);
      return error.cause === cause;
    });
  });
});

describe("refusals", () => {
  test("before the upgrade come with their reason", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    peer.refuse = () => ({ status: 403, reason: "WRONG_ORIGIN" });
    const languages = { src: "en", tgt: "es" };
    const opening = Session.open({ addresses: peer.address, languages, WebSocket: ClientSocket });
    await assert.rejects(opening, { name: "SessionRefusedError", reason: "WRONG_ORIGIN" });
  });

  test("of a draining gateway are retried elsewhere", async (context) => {
    const [first, second] = await peers(context, 2);
    assert(first && second);
    first.refuse = () => ({ status: 503, reason: "DRAINING" });
    const addresses = [first.address, second.address];
    const languages = { src: "en", tgt: "es" };
    const opening = Session.open({ addresses, languages, WebSocket: ClientSocket });
    const socket = await second.sockets.next();
    await socket.opens();
    (await opening).abort();
  });

  test("nobody at the address: the session is unavailable after its time", async () => {
    const opening = Session.open({
      addresses: "ws://127.0.0.1:1",
      languages: { src: "en", tgt: "es" },
      reconnectMs: 200,
      WebSocket: ClientSocket,
    });
    await assert.rejects(opening, { name: "SessionUnavailableError", reason: "UNREACHABLE" });
  });

  test(
    "a runtime without WebSocket is told what to do",
    { skip: "WebSocket" in globalThis },
    async () => {
      const languages = { src: "en", tgt: "es" };
      await assert.rejects(
        Session.open({ addresses: "ws://127.0.0.1:1", languages }),
        /package ws/,
      );
    },
  );
});

describe("full buffers", () => {
  const MIB = 1024 * 1024;

  test("send waits until the server has acknowledged", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { session, socket } = await openAt(context, peer, { maxUnacknowledgedBytes: MIB });
    await session.send(new Uint8Array(MIB));
    await session.send(new Uint8Array(3200));
    let isSent = false;
    const sending = session.send(new Uint8Array(3200)).then(() => {
      isSent = true;
    });
    const chunks = Math.ceil(MIB / 3200) + 1;
    for (let at = 0; at < chunks; at += 1) {
      await socket.audio();
    }
    assert(!isSent, "it did not wait");
    socket.say(ack(100));
    await sending;
    assert.equal((await socket.audio()).seq, chunks);
  });

  test("an app that never waits gets an error, and the session goes on", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { session, socket } = await openAt(context, peer, { maxUnacknowledgedBytes: MIB });
    const sendings = Array.from({ length: 40 }, () =>
      session.send(new Uint8Array(MIB / 8)).catch((error: unknown) => error),
    );
    // The first ones are taken over, others wait, and the rest is refused.
    await session.send(new Uint8Array(MIB / 8)).catch((error: unknown) => {
      assert(error instanceof BufferFullError);
    });
    socket.say(ack(1e9));
    const timer = setInterval(() => {
      socket.say(ack(1e9));
    }, 10);
    const errors = await Promise.all(sendings);
    clearInterval(timer);
    assert(errors.some((error) => error instanceof BufferFullError));
    assert(errors.some((error) => error === undefined));
    assert(!session.ended);
  });

  test("an app that never reads loses the session with a clear reason", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { session, socket } = await openAt(context, peer);
    const results = session.results();
    for (let index = 0; index < 10_001; index += 1) {
      socket.say(result(index));
    }
    await assert.rejects(
      session.drained().then(() => session.close()),
      (error) => {
        assert(error instanceof SessionLostError);
        return error.reason === "UNREAD";
      },
    );
    assert.equal((await results.next()).value?.index, 0);
  });
});

test("a session that is aborted ends at once, and says what was lost", async (context) => {
  const [peer] = await peers(context, 1);
  assert(peer);
  const { session, socket } = await openAt(context, peer);
  await session.send(new Int16Array(1600));
  const reading = collect(session.results());
  session.abort();
  await assert.rejects(reading, { name: "SessionLostError", reason: "ABORTED" });
  await assert.rejects(session.send(new Int16Array(1)), { reason: "ABORTED" });
  await socket.gone;
});

test("a socket that takes nothing keeps frames in the SDK, not in its buffer", async (context) => {
  const [peer] = await peers(context, 1);
  assert(peer);
  let most = 0;
  class Watched extends ClientSocket {
    override send(data: string | Uint8Array<ArrayBuffer>): void {
      super.send(data);
      most = Math.max(most, this.bufferedAmount);
    }
  }
  const { session, socket } = await openAt(context, peer, { WebSocket: Watched });
  socket.socket.pause();
  const size = 8 * 1024 * 1024;
  await session.send(new Uint8Array(size));
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert(most > 200_000, "the network has taken everything");
  assert(most < 300_000, `${most} bytes in the socket`);
  socket.socket.resume();
  for (let seq = 0; seq < Math.ceil(size / 3200); seq += 1) {
    assert.equal((await socket.audio()).seq, seq);
  }
});

test("a time that no chunk can have is refused, and the session goes on", async (context) => {
  const [peer] = await peers(context, 1);
  assert(peer);
  const { session, socket } = await openAt(context, peer);
  const nanoseconds = Date.now() * 1e6;
  for (const recordedAt of [NaN, Infinity, -1, nanoseconds, "5", 5n] as number[]) {
    await assert.rejects(session.send(new Int16Array(10), { recordedAt }), (error) => {
      assert(error instanceof RangeError);
      assert.match(error.message, /^recordedAt: /);
      return true;
    });
  }
  await session.send(new Int16Array(10), { recordedAt: 1234.9 });
  const { seq, clientMs } = await socket.audio();
  assert.deepEqual([seq, clientMs], [0, 1234]);
});

test("an app may use its buffer again as soon as it has called send", async (context) => {
  const [peer] = await peers(context, 1);
  assert(peer);
  const { session, socket } = await openAt(context, peer);
  const samples = new Int16Array(4).fill(257);
  const sending = session.send(samples);
  samples.fill(0);
  await sending;
  assert.deepEqual([...(await socket.audio()).data], Array(8).fill(1));
});
