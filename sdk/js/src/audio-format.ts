/** Formats of audio. */

export type Encoding =
  /** Signed 16-bit little-endian samples, interleaved. */
  | "PCM_S16LE"
  /** Opus packets as in RFC 6716, one for each `send`. */
  | "OPUS";

export interface AudioFormat {
  readonly encoding: Encoding;
  /** 8000 to 48000. */
  readonly sampleRateHz: number;
  /** 1 or 2. */
  readonly channels: number;
}

export const PCM_SAMPLE_BYTES = 2;

/** 16-bit PCM at 16 kHz, one channel: what speech recognition needs. */
export const SPEECH_FORMAT: AudioFormat = {
  encoding: "PCM_S16LE",
  sampleRateHz: 16_000,
  channels: 1,
};

/** The size of one sample of every channel. */
export function frameBytes(format: AudioFormat): number {
  return PCM_SAMPLE_BYTES * format.channels;
}

/** How many milliseconds this many bytes of PCM last. */
export function pcmDurationMs(format: AudioFormat, bytes: number): number {
  return (bytes * 1000) / (format.sampleRateHz * frameBytes(format));
}
