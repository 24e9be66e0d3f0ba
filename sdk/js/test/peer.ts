/** A gateway on a real socket that does what the test tells it. */

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

import { WebSocket, WebSocketServer } from "ws";

import { Session, type SessionOptions, type WebSocketConstructor } from "../src/index.js";
import { opened } from "./events.js";

const PATIENCE_MS = 10_000;

/** What sessions use in these tests: the package ws, or the runtime's own WebSocket. */
export const ClientSocket: WebSocketConstructor =
  process.env.LINGUA_TEST_WEBSOCKET === "global" ? globalThis.WebSocket : WebSocket;

type Heard = { kind: "text"; message: Record<string, unknown> } | { kind: "audio"; frame: Buffer };

/** The gateway's side of one connection. */
export class PeerSocket {
  readonly heard = new Queue<Heard>();
  readonly gone: Promise<number>;
  readonly socket: WebSocket;
  readonly request: IncomingMessage;

  constructor(socket: WebSocket, request: IncomingMessage) {
    this.socket = socket;
    this.request = request;
    socket.on("message", (data: Buffer, isBinary: boolean) => {
      this.heard.put(
        isBinary
          ? { kind: "audio", frame: data }
          : { kind: "text", message: JSON.parse(data.toString()) as Record<string, unknown> },
      );
    });
    this.gone = new Promise((resolve) => socket.on("close", resolve));
  }

  say(...events: object[]): void {
    this.socket.send(JSON.stringify({ events }));
  }

  /** Returns the next text message. */
  async text(): Promise<Record<string, unknown>> {
    const heard = await this.heard.next();
    assert(heard.kind === "text", "audio came where text was expected");
    return heard.message;
  }

  /** Returns the next audio frame: its sequence number, flags and data. */
  async audio(): Promise<{ seq: number; flags: number; clientMs: number; data: Buffer }> {
    const heard = await this.heard.next();
    assert(heard.kind === "audio", `${JSON.stringify(heard)} came where audio was expected`);
    const { frame } = heard;
    assert.deepEqual([frame[0], frame[2], frame[3]], [1, 0, 0]);
    return {
      seq: Number(frame.readBigUInt64BE(4)),
      flags: frame[1] ?? 0,
      clientMs: Number(frame.readBigUInt64BE(12)),
      data: frame.subarray(20),
    };
  }

  /** Reads Open and answers it as a gateway does. Returns what was asked for. */
  async opens(limits: Record<string, number> = {}): Promise<Record<string, unknown>> {
    const { open } = (await this.text()) as { open: { resume?: { nextSeq: number } } };
    this.say(opened(open.resume?.nextSeq ?? 0, limits));
    return open;
  }
}

/** What a gateway answers to a request for a WebSocket that it refuses. */
interface Refusal {
  readonly status: number;
  readonly reason: string;
}

/** A gateway that the test controls. */
export class Peer {
  sockets = new Queue<PeerSocket>();
  /** Decides about each request, with and without an upgrade; null accepts it. */
  refuse: (token: string) => Refusal | null = () => null;
  /** Answers other requests; returns whether it did. */
  serve: (request: IncomingMessage, response: ServerResponse) => boolean = () => false;
  readonly #server: Server;
  readonly #webSockets: WebSocketServer;

  constructor() {
    this.#webSockets = new WebSocketServer({
      noServer: true,
      perMessageDeflate: false,
      handleProtocols: (protocols) => (protocols.has("lingua.v1") ? "lingua.v1" : false),
    });
    this.#server = createServer((request, response) => {
      if (this.serve(request, response)) {
        return;
      }
      const token = (request.headers.authorization ?? "").replace("Bearer ", "");
      const refusal = this.refuse(token) ?? { status: 426, reason: "UPGRADE_REQUIRED" };
      response.writeHead(refusal.status, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ reason: refusal.reason, message: "no" }));
    });
    this.#server.on("upgrade", (request, socket, head) => {
      const offered = request.headers["sec-websocket-protocol"] ?? "";
      const refusal = this.refuse(/bearer\.([^, ]+)/.exec(offered)?.[1] ?? "");
      if (refusal !== null) {
        socket.end(`HTTP/1.1 ${refusal.status} No\r\nConnection: close\r\n\r\n`);
        return;
      }
      this.#webSockets.handleUpgrade(request, socket, head, (webSocket) => {
        this.sockets.put(new PeerSocket(webSocket, request));
      });
    });
  }

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return this;
  }

  get address(): string {
    return `ws://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    for (const client of this.#webSockets.clients) {
      client.terminate();
    }
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

/** Starts peers, and stops them at the end of the test. */
export async function peers(context: TestContext, count: number): Promise<Peer[]> {
  const made = await Promise.all(Array.from({ length: count }, () => new Peer().start()));
  context.after(() => {
    made.forEach((peer) => {
      peer.stop();
    });
  });
  return made;
}

export interface Opening {
  readonly session: Session;
  readonly socket: PeerSocket;
}

/** Opens a session at a peer, and drops it at the end of the test. */
export async function openAt(
  context: TestContext,
  peer: Peer,
  options: Partial<SessionOptions> = {},
  limits: Record<string, number> = {},
): Promise<Opening> {
  const opening = Session.open({
    addresses: peer.address,
    languages: { src: "en", tgt: "es" },
    WebSocket: ClientSocket,
    ...options,
  });
  const socket = await peer.sockets.next();
  await socket.opens(limits);
  const session = await opening;
  context.after(() => {
    session.abort();
  });
  return { session, socket };
}

/** Things in order. Waiting for one too long is an error. */
export class Queue<T> {
  readonly #items: T[] = [];
  readonly #waiting: ((item: T) => void)[] = [];

  get size(): number {
    return this.#items.length;
  }

  put(item: T): void {
    const waiting = this.#waiting.shift();
    if (waiting === undefined) {
      this.#items.push(item);
    } else {
      waiting(item);
    }
  }

  async next(): Promise<T> {
    const [item] = this.#items.splice(0, 1);
    if (item !== undefined) {
      return item;
    }
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new Error(`nothing came within ${PATIENCE_MS} ms`));
      }, PATIENCE_MS);
      this.#waiting.push((each) => {
        clearTimeout(timer);
        resolve(each);
      });
    });
  }
}
