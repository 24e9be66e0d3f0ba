/** Rooms over real sockets, against a gateway that the test controls. */

import assert from "node:assert/strict";
import type { IncomingMessage, ServerResponse } from "node:http";
import { describe, test, type TestContext } from "node:test";

import {
  type Listener,
  ListenerLostError,
  type ListenOptions,
  Room,
  type RoomEvent,
  RoomRefusedError,
  RoomUnavailableError,
} from "../src/index.js";
import { failed } from "./events.js";
import { ClientSocket, type Peer, peers, type PeerSocket } from "./peer.js";
import { inShort } from "./room-driver.js";
import { changed, joined, notSaid, room, roomAudioFrame, roomClosed, said } from "./room-events.js";

interface Asked {
  readonly path: string;
  readonly token: string;
  readonly body: Record<string, unknown>;
}

/** Makes a peer answer calls about rooms. Returns what it was asked. */
function answers(peer: Peer, answer: (asked: Asked) => object | number): Asked[] {
  const all: Asked[] = [];
  peer.serve = (request: IncomingMessage, response: ServerResponse): boolean => {
    if (request.method !== "POST") {
      return false;
    }
    let body = "";
    request.on("data", (part: Buffer) => (body += part.toString()));
    request.on("end", () => {
      const asked = {
        path: request.url ?? "",
        token: (request.headers.authorization ?? "").replace("Bearer ", ""),
        body: JSON.parse(body) as Record<string, unknown>,
      };
      all.push(asked);
      const found = answer(asked);
      const isRefusal = typeof found === "number";
      const refusal = { reason: "ROOM_NOT_FOUND", message: "no such room" };
      response.writeHead(isRefusal ? found : 200, { "Content-Type": "application/json" });
      response.end(JSON.stringify(isRefusal ? refusal : found));
    });
    return true;
  };
  return all;
}

function roomAt(peer: Peer): Room {
  const url = peer.address.replace("ws:", "http:");
  return new Room({ url, roomId: "r-1", token: "room.r-1.l", WebSocket: ClientSocket });
}

interface Joined {
  readonly listener: Listener;
  readonly socket: PeerSocket;
}

/** Joins a room at a peer, and drops the listener at the end of the test. */
async function joinAt(
  context: TestContext,
  peer: Peer,
  options: Partial<ListenOptions> = {},
): Promise<Joined> {
  const joining = roomAt(peer).listen({ language: "es", ...options });
  const socket = await peer.sockets.next();
  await socket.text();
  socket.say(joined());
  const listener = await joining;
  context.after(() => {
    listener.abort();
  });
  return { listener, socket };
}

async function typesOf(events: AsyncIterable<RoomEvent>): Promise<string[]> {
  const types: string[] = [];
  for await (const event of events) {
    types.push(event.type);
  }
  return types;
}

describe("calls", () => {
  test("a room is made, and its host makes tokens for others and closes it", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const asked = answers(peer, ({ path }) =>
      path.endsWith("create")
        ? { room: room(), hostToken: "room.r-1.h" }
        : path.endsWith("token")
          ? { joinToken: "room.r-1.s", expiresMs: "5000" }
          : {},
    );
    const host = await Room.create({
      url: peer.address,
      name: "Lecture",
      languages: ["en", "es"],
      speak: "anyone",
      maxSpeakers: 2,
      token: "mine",
    });
    assert.deepEqual([host.roomId, host.token], ["r-1", "room.r-1.h"]);
    const token = await host.joinToken({ role: "speaker", lifetimeS: 60 });
    assert.deepEqual(token, { token: "room.r-1.s", expiresMs: 5000 });
    await host.close();
    const limits = { maxMembers: 0, maxSpeakers: 2, maxLanguages: 0 };
    const options = { name: "Lecture", languages: ["en", "es"], speak: "SPEAK_POLICY_ANYONE" };
    const hostToken = "room.r-1.h";
    assert.deepEqual(asked, [
      {
        path: "/v1/rooms/create",
        token: "mine",
        body: { options: { ...options, ...limits }, tenant: "" },
      },
      {
        path: "/v1/rooms/token",
        token: hostToken,
        body: { roomId: "r-1", hostToken, role: "ROOM_ROLE_SPEAKER", lifetimeS: 60 },
      },
      { path: "/v1/rooms/close", token: hostToken, body: { roomId: "r-1", hostToken } },
    ]);
  });

  test("a room is described, and its members are listed page by page", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    answers(peer, ({ path, body }) => {
      if (path.endsWith("get")) {
        const languages = [{ language: "es", listeners: 3 }];
        return { room: room({ nextIndex: "7", listeners: 3, languages }) };
      }
      return body.pageToken === ""
        ? {
            members: [{ name: "Ana", role: "ROOM_ROLE_SPEAKER", language: "en" }],
            nextPageToken: "2",
          }
        : {
            members: [
              {
                role: "ROOM_ROLE_LISTENER",
                language: "es",
                listening: { language: "es", speech: true },
              },
            ],
          };
    });
    const info = await roomAt(peer).get();
    assert.deepEqual([info.name, info.speak, info.nextIndex], ["Lecture", "invited", 7]);
    assert.equal(info.languages[0]?.listeners, 3);
    const members = [];
    for await (const member of roomAt(peer).members()) {
      members.push([member.name, member.role, member.listening?.speech]);
    }
    assert.deepEqual(members, [
      ["Ana", "speaker", undefined],
      ["", "listener", true],
    ]);
  });

  test("refusals and gateways that do not answer are told apart", async (context) => {
    const [first, second] = await peers(context, 2);
    assert(first && second);
    answers(first, () => 404);
    await assert.rejects(roomAt(first).get(), (error) => {
      assert(error instanceof RoomRefusedError);
      return error.reason === "ROOM_NOT_FOUND";
    });
    answers(first, () => 503);
    await assert.rejects(roomAt(first).get(), RoomUnavailableError);
    answers(first, () => ({ room: 1 }));
    await assert.rejects(roomAt(first).get(), /UNREACHABLE: .*room is not an object/);
    const gone = roomAt(first);
    const { address } = first;
    first.stop();
    await assert.rejects(gone.get(), /UNREACHABLE/);
    answers(second, () => ({ room: room() }));
    const both = new Room({
      url: [address, second.address],
      roomId: "r-1",
      token: "room.r-1.l",
    });
    assert.equal((await both.get()).roomId, "r-1");
  });

  test("wrong arguments are named before anything is sent", async () => {
    const url = "http://127.0.0.1:1";
    const wrong: [() => unknown, RegExp][] = [
      [() => new Room({ url, roomId: "a b", token: "room.x" }), /^RangeError: roomId/],
      [() => new Room({ url, roomId: "r", token: "no token" }), /^RangeError: token/],
      [() => new Room({ url: `${url}/x`, roomId: "r", token: "room.x" }), /^RangeError: url/],
      [() => Room.create({ url, languages: ["english!"] }), /^RangeError: languages\[0\]/],
      [() => Room.create({ url, name: "x".repeat(101) }), /^RangeError: name/],
      [() => Room.create({ url, speak: "all" as "anyone" }), /^RangeError: speak/],
      [() => Room.create({ url, maxMembers: -1 }), /^RangeError: maxMembers/],
    ];
    const made = new Room({ url, roomId: "r", token: "room.x", WebSocket: ClientSocket });
    wrong.push(
      [() => made.joinToken({ role: "host" as "speaker" }), /^RangeError: role/],
      [() => made.joinToken({ role: "speaker", lifetimeS: 1e9 }), /^RangeError: lifetimeS/],
      [() => made.listen({ language: "es", captions: false }), /^RangeError: captions/],
      [() => made.listen({ language: "" }), /^RangeError: language/],
      [() => made.speak({ language: "en", name: "x".repeat(65) }), /languages.name/],
    );
    for (const [call, message] of wrong) {
      await assert.rejects(Promise.resolve().then(call), message);
    }
  });
});

describe("a listener", () => {
  test("joins with its token, and gets what is said with its audio", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const joining = roomAt(peer).listen({ language: "es", speech: true, name: "Ben" });
    const socket = await peer.sockets.next();
    assert.equal(socket.request.url, "/v1/listen");
    assert.match(socket.request.headers["sec-websocket-protocol"] ?? "", /bearer\.room\.r-1\.l/);
    assert.deepEqual(await socket.text(), {
      join: {
        roomId: "r-1",
        joinToken: "room.r-1.l",
        name: "Ben",
        status: false,
        listening: { language: "es", captions: true, speech: true, originalAudio: false },
      },
    });
    socket.say(joined());
    const listener = await joining;
    assert.equal(listener.room?.name, "Lecture");
    socket.socket.send(roomAudioFrame(3, 0, [7, 8]));
    socket.say(said(0, null), notSaid(1, 0), roomClosed());
    const heard = [];
    for await (const each of listener.results()) {
      heard.push(inShort(each));
      if (each.type === "said") {
        assert.deepEqual([...each.speech], [7, 8]);
      }
    }
    assert.deepEqual(heard, ["0", "missing 1"]);
    assert(listener.roomClosed);
    assert.equal((await typesOf(listener.events())).at(-1), "closed");
  });

  test("goes on where it was after a break, at another gateway", async (context) => {
    const [first, second] = await peers(context, 2);
    assert(first && second);
    second.sockets = first.sockets;
    const all = new Room({
      url: [first.address, second.address],
      roomId: "r-1",
      token: "room.r-1.l",
      WebSocket: ClientSocket,
    });
    const joining = all.listen({ language: "es" });
    const socket = await first.sockets.next();
    await socket.text();
    socket.say(joined());
    const listener = await joining;
    const heard: string[] = [];
    const reading = (async () => {
      for await (const each of listener.results()) {
        heard.push(inShort(each));
      }
    })();
    socket.say(said(0, null), said(1, 0));
    await new Promise((resolve) => setTimeout(resolve, 50));
    socket.socket.terminate();
    const next = await first.sockets.next();
    assert.notEqual(next.request.headers.host, socket.request.headers.host);
    const { join } = (await next.text()) as { join: Record<string, unknown> };
    assert.deepEqual([join.memberId, join.position], ["m-1", 2]);
    next.say(joined(2), said(1, 0), said(2, 1));
    next.say(roomClosed());
    await reading;
    assert.deepEqual(heard, ["0", "1", "2"]);
    assert.deepEqual(listener.counts, { said: 3, notSaid: 0, repeated: 1, rejoins: 1 });
  });

  test("changes what it receives, or is told why not", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { listener, socket } = await joinAt(context, peer);
    const changing = listener.change({ language: "fr" });
    const listening = { language: "fr", captions: true, speech: false, originalAudio: false };
    assert.deepEqual(await socket.text(), { change: { listening } });
    socket.say(changed("fr", 0));
    await changing;
    assert.deepEqual(listener.listening, listening);
    const refused = listener.change({ speech: true });
    await socket.text();
    socket.say(failed("ROOM_FULL"));
    await assert.rejects(refused, /ROOM_FULL/);
    assert.deepEqual(listener.listening, listening);
    // The newest of several changes wins.
    const several = ["de", "it"].map((language) => listener.change({ language }));
    await socket.text();
    socket.say(changed("de", 0));
    await socket.text();
    socket.say(changed("it", 0));
    await Promise.all(several);
    assert.equal(listener.listening.language, "it");
  });

  test("leaves, and says so", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { listener, socket } = await joinAt(context, peer);
    const leaving = listener.leave();
    assert.deepEqual(await socket.text(), { leave: {} });
    await leaving;
    assert(listener.ended && !listener.roomClosed);
    assert.deepEqual(await typesOf(listener.events()), []);
    await listener.leave();
  });

  test("can leave while there is no connection", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { listener } = await joinAt(context, peer);
    peer.stop();
    const events = listener.events();
    assert.equal((await events.next()).value?.type, "reconnecting");
    await listener.leave();
    assert(listener.ended);
  });

  test("is lost if the room is gone, and says where it was", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { listener, socket } = await joinAt(context, peer);
    socket.say(said(0, null));
    socket.say(failed("ROOM_NOT_FOUND"));
    socket.socket.close(4404, "ROOM_NOT_FOUND");
    const failure = typesOf(listener.events());
    await assert.rejects(failure, (error) => {
      assert(error instanceof ListenerLostError);
      return error.reason === "ROOM_NOT_FOUND" && error.position === 1;
    });
  });

  test("an app that does not read is told that", async (context) => {
    const [peer] = await peers(context, 1);
    assert(peer);
    const { listener, socket } = await joinAt(context, peer);
    const results = listener.results();
    for (let at = 0; at <= 10_000; at += 500) {
      socket.say(
        ...Array.from({ length: 500 }, (_, more) =>
          said(at + more, at + more === 0 ? null : at + more - 1),
        ),
      );
    }
    await assert.rejects(async () => {
      await new Promise((resolve) => setTimeout(resolve, 500));
      await typesOf(results);
    }, /UNREAD/);
  });
});
