/** What a session's protocol asks its shell to do. */

import type { SessionError } from "../errors.js";
import type { SessionEvent } from "../events.js";
import type { Ending } from "./endings.js";

export type Effect =
  /** Give this event to the app. */
  | { readonly do: "give"; readonly event: SessionEvent }
  /** End the connection. If graceful, what is ready is still sent. */
  | { readonly do: "close"; readonly ending: Ending; readonly graceful: boolean }
  /** Connect to the next gateway after this many milliseconds. */
  | { readonly do: "retry"; readonly afterMs: number }
  /** The session is closed, and the app has been given everything. */
  | { readonly do: "over" }
  /** The session cannot continue. */
  | { readonly do: "fail"; readonly error: SessionError };
