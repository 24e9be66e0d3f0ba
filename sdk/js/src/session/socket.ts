/** One WebSocket to a gateway. */

import { type Ending, lost, refused, serverError } from "../protocol/endings.js";
import { isFields } from "../protocol/json.js";
import { errorFrom } from "../protocol/wire-parts.js";
import { httpAddress } from "./addresses.js";

/** The parts of a WebSocket that the SDK uses. Browsers, Node.js 22 and the package ws have them. */
export interface WebSocketLike {
  binaryType: string;
  readonly protocol: string;
  readonly bufferedAmount: number;
  readonly readyState: number;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
  /** Only the package ws has it: ends the connection without waiting for the other side. */
  terminate?(): void;
}

export type WebSocketConstructor = new (address: string, protocols: string[]) => WebSocketLike;

export const PROTOCOL = "lingua.v1";
/** The state of a WebSocket in which it sends. Browsers report an error in any other. */
const OPEN = 1;
const NORMAL = 1000;
const ABNORMAL = 1006;
const CLOSE_FOLLOWS_MS = 100;
/** A gateway that is slow to refuse is slow to explain. */
const EXPLAIN_MS = 3000;
const HTTP_WOULD_ACCEPT = 426;

export interface SocketListener {
  onText(frame: string): void;
  onBinary(frame: ArrayBuffer): void;
  onClosed(code: number, reason: string): void;
}

/** An open connection. */
export class Socket {
  #socket: WebSocketLike;
  #closeTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(socket: WebSocketLike, listener: SocketListener) {
    this.#socket = socket;
    socket.onmessage = (event: { readonly data: unknown }): void => {
      if (typeof event.data === "string") {
        listener.onText(event.data);
      } else if (event.data instanceof ArrayBuffer) {
        listener.onBinary(event.data);
      }
    };
    socket.onclose = (event: { readonly code: number; readonly reason: string }): void => {
      clearTimeout(this.#closeTimer);
      listener.onClosed(event.code, event.reason);
    };
    // A close event should follow, and has more to say.
    socket.onerror = (): void => {
      this.#closeTimer ??= setTimeout(() => {
        listener.onClosed(ABNORMAL, "");
      }, CLOSE_FOLLOWS_MS);
    };
  }

  /** Bytes that were sent, and that the network has not taken yet. */
  get waiting(): number {
    return this.#socket.bufferedAmount;
  }

  /** Does nothing if the connection is about to end: then the next one sends everything again. */
  send(frame: string | Uint8Array<ArrayBuffer>): void {
    if (this.#socket.readyState === OPEN) {
      this.#socket.send(frame);
    }
  }

  /** Says that nothing more will be sent. The listener is told when the other side agrees. */
  close(): void {
    this.#socket.close(NORMAL);
  }

  /** Leaves the connection at once. The listener is not called any more. */
  abandon(): void {
    clearTimeout(this.#closeTimer);
    leave(this.#socket);
  }
}

export interface Dialling {
  readonly address: string;
  /** Empty for none. */
  readonly token: string;
  readonly withinMs: number;
  readonly constructor: WebSocketConstructor;
  readonly signal: AbortSignal;
}

/** Opens a WebSocket. Returns why that failed, if it did. */
export async function dial(dialling: Dialling): Promise<WebSocketLike | Ending> {
  let socket: WebSocketLike;
  const offered = dialling.token === "" ? [PROTOCOL] : [PROTOCOL, `bearer.${dialling.token}`];
  try {
    socket = new dialling.constructor(dialling.address, offered);
  } catch (error) {
    // For example a page loaded by https may not connect to ws.
    const why = error instanceof Error ? error.message : String(error);
    return refused(
      serverError("BAD_ADDRESS", `cannot connect to ${dialling.address}: ${why}`),
      true,
    );
  }
  socket.binaryType = "arraybuffer";
  const outcome = await opening(socket, dialling);
  if (outcome === "open") {
    if (socket.protocol === PROTOCOL) {
      return socket;
    }
    leave(socket);
    return lost(`the server at ${dialling.address} does not speak ${PROTOCOL}`);
  }
  leave(socket);
  return outcome === "late"
    ? lost(`no connection to ${dialling.address} in time`, true)
    : await explain(dialling);
}

function opening(socket: WebSocketLike, { withinMs, signal }: Dialling): Promise<Opening> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      finish("late");
    }, withinMs);
    const finish = (outcome: Opening): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      resolve(outcome);
    };
    const onAbort = (): void => {
      finish("late");
    };
    signal.addEventListener("abort", onAbort);
    socket.onopen = (): void => {
      finish("open");
    };
    socket.onclose = (): void => {
      finish("failed");
    };
    // A close event should follow, but the WebSocket of Node.js does not always send one.
    socket.onerror = (): void => {
      finish("failed");
    };
    if (signal.aborted) {
      finish("late");
    }
  });
}

type Opening = "open" | "failed" | "late";

function leave(socket: WebSocketLike): void {
  socket.onopen = socket.onmessage = socket.onclose = null;
  socket.onerror = (): void => undefined;
  socket.close(NORMAL);
  socket.terminate?.();
}

/**
 * Asks why a WebSocket could not be opened: browsers do not show a refusal's status and body to
 * scripts. The gateway checks a plain request as it checks a WebSocket's, and refuses it alike.
 */
async function explain({ address, token, signal }: Dialling): Promise<Ending> {
  const unreachable = lost(`cannot connect to ${address}`);
  const headers = token === "" ? {} : { Authorization: `Bearer ${token}` };
  const limit = new AbortController();
  const stop = (): void => {
    limit.abort();
  };
  const timer = setTimeout(stop, EXPLAIN_MS);
  signal.addEventListener("abort", stop);
  try {
    const response = await fetch(httpAddress(address), {
      headers,
      signal: limit.signal,
      cache: "no-store",
      redirect: "error",
    });
    const body = await response.text();
    return response.status === HTTP_WOULD_ACCEPT ? unreachable : refusalOf(response.status, body);
  } catch {
    return unreachable;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

/** Returns what an HTTP refusal says. */
export function refusalOf(status: number, body: string): Ending {
  try {
    const error: unknown = JSON.parse(body);
    if (isFields(error) && typeof error.reason === "string" && error.reason !== "") {
      return refused(errorFrom(error));
    }
  } catch {
    // Not from a gateway: a proxy has pages of its own.
  }
  return lost(`the server answered with HTTP status ${status}`);
}
