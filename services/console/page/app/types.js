// @ts-check
/**
 * The documents of the API, /api/v1 (docs/console.md). Times are milliseconds since the epoch; what
 * is not known is absent.
 *
 * @typedef {Readonly<Record<string, { message: string, since_ms: number }>>} Problems by source.
 * @typedef {{ problems?: Problems }} Document
 *
 * @typedef {object} Me
 * @property {string} name
 * @property {"operator" | "viewer"} role
 * @property {boolean} may_act
 * @property {boolean} auth whether people have to sign in.
 * @property {string} csrf
 * @property {number} [expires_ms]
 * @property {string} version
 * @property {string} instance
 * @property {{ grafana?: string, trace?: string }} links
 *
 * @typedef {object} Series
 * @property {number} interval_s
 * @property {number} end_ms
 * @property {number[]} jobs_per_s
 * @property {number[]} queue
 * @property {number[]} p50_ms
 * @property {number[]} p99_ms
 * @property {number[]} retries_per_s
 * @property {number[]} missing_per_s
 * @property {number[]} sessions
 * @property {number[]} free
 * @property {number[]} slots
 *
 * @typedef {object} OverviewFields
 * @property {{ nodes: Record<string, number>, slots: number, free: number, sessions: number,
 *   jobs: number, queue: number }} totals
 * @property {{ window_s: number, jobs_per_s: number, retries_per_s: number, failed_per_s: number,
 *   missing_per_s: number, p50_ms?: number, p99_ms?: number }} rates
 * @property {Series} series
 * @property {{ serving: number, draining: number, down: number,
 *   down_list: { id: string, service: string, announced_ms: number }[] }} instances
 * @property {{ kind: string, sources: string[], targets: string[],
 *   cells: Record<string, [number, number, number]>, left_out_nodes?: number }} matrix
 * @property {{ src: string, tgt: string, free: number, slots: number }[]} shortages
 * @typedef {Document & OverviewFields} Overview
 *
 * @typedef {object} NodeRow
 * @property {string} id
 * @property {string} health
 * @property {boolean} ejected
 * @property {number} [ejected_until_ms]
 * @property {boolean} drained
 * @property {number} slots
 * @property {number} used
 * @property {number} load
 * @property {number} failures
 * @property {string} instance
 * @property {number} [cell] if there are several.
 * @property {string} [owner]
 * @property {string[]} sources
 * @property {number} sources_total
 * @property {string[]} targets
 * @property {number} targets_total
 * @property {{ since_ms: number, used_at_start: number, used_now: number }} [drain]
 *
 * @typedef {object} JobRow
 * @property {string} id
 * @property {string} state
 * @property {string} src
 * @property {string} tgt
 * @property {string} tenant
 * @property {string} session
 * @property {number} utterance
 * @property {string} cut
 * @property {string} node
 * @property {string[]} nodes
 * @property {number} attempts
 * @property {number} created_ms
 * @property {number} changed_ms
 * @property {number} [took_ms]
 * @property {string} [error]
 * @property {string} [kind]
 *
 * @typedef {object} NodeDetails
 * @property {string} address
 * @property {number} epoch
 * @property {number} [last_heartbeat_ms]
 * @property {{ asr: string[], semantic: string[], tts: string[], pairs: string[],
 *   pairs_total: number, stages: string[] }} capabilities
 * @property {number} directions_total
 *
 * @typedef {object} NodeFields
 * @property {NodeRow & NodeDetails} node
 * @property {{ job_id: string, attempt: number, running: boolean, ends_ms: number }[]} leases
 * @property {{ interval_s: number, end_ms: number, used: number[], slots: number }} series
 * @property {JobRow[]} jobs
 * @property {{ at_ms: number, job_id: string, attempt: number, outcome: string,
 *   error?: string }[]} failures
 * @typedef {Document & NodeFields} NodeDocument
 *
 * @typedef {object} Attempt
 * @property {number} number
 * @property {string} node
 * @property {number} [reserved_ms]
 * @property {number} [acked_ms]
 * @property {number} [ended_ms]
 * @property {string} outcome
 * @property {string} detail
 *
 * @typedef {object} Step
 * @property {string} kind
 * @property {number} attempt 0: the job as a whole.
 * @property {number} started_us
 * @property {number} took_us
 * @property {string} [node]
 * @property {string} [detail]
 *
 * @typedef {object} JobDetails
 * @property {string} home
 * @property {Attempt[]} attempt_list
 * @property {Step[]} steps
 * @property {{ reason: string, message: string, explanation: string }} [failure]
 * @property {number[]} joined
 * @property {boolean} turn_broken
 * @property {string} [trace_url]
 * @typedef {Document & { job: JobRow & JobDetails }} JobDocument
 *
 * @typedef {object} SessionRow
 * @property {string} id
 * @property {string} tenant
 * @property {string} gateway
 * @property {boolean} connected
 * @property {number} opened_ms
 * @property {number} [last_chunk_ms]
 * @property {number} utterances
 * @property {number} waiting
 * @property {number} results
 * @property {number} missing
 * @property {string[]} directions
 * @property {string} [room] that it speaks to; only in the document of one session.
 *
 * @typedef {object} RoomRow
 * @property {string} id
 * @property {string} name
 * @property {string} tenant
 * @property {number} created_ms
 * @property {number} utterances
 * @property {number} speakers
 * @property {string[]} spoken
 * @property {number} listeners
 * @property {string[]} languages
 * @property {number} languages_total
 * @property {number} waiting in the language that has most.
 * @property {number} lag_ms of the oldest utterance that waits.
 *
 * @typedef {object} RoomMember
 * @property {string} key
 * @property {string} name
 * @property {string} role
 * @property {string} language
 * @property {string[]} gets
 * @property {number} joined_ms
 * @property {string} gateway
 *
 * @typedef {{ session: string, name: string, language: string, joined_ms: number }} RoomSpeaker
 * @typedef {{ language: string, listeners: number, speech_listeners: number, waiting: number,
 *   lag_ms: number }} RoomLanguage
 * @typedef {RoomRow & { speak: string, allowed: string[], max_members: number, max_speakers: number,
 *   max_languages: number, gateways: string[], speaker_list: RoomSpeaker[],
 *   language_list: RoomLanguage[] }} RoomDetails
 * @typedef {Document & { room: RoomDetails,
 *   members: List<RoomMember> & { partial?: boolean } }} RoomDocument
 *
 * @typedef {object} Utterance
 * @property {number} index
 * @property {string} job_id
 * @property {string} src
 * @property {string} tgt
 * @property {string} cut
 * @property {string} state
 * @property {string} [kind]
 * @property {string} node
 * @property {number} attempts
 * @property {string} [error]
 * @property {boolean} missing
 * @property {number} [spoken_from_ms]
 * @property {number} [cut_ms]
 * @property {number} [result_ms]
 * @property {number} [latency_ms]
 * @property {number[]} joined
 * @property {number} [joined_into]
 *
 * @typedef {SessionRow & { epoch: number, over?: boolean,
 *   turns: { src: string, tgt: string, node: string, holds: boolean | number }[] }} SessionDetails
 * @typedef {Document & { session: SessionDetails, utterances: List<Utterance> }} SessionDocument
 *
 * @typedef {object} InstanceRow
 * @property {string} id
 * @property {string} service
 * @property {string} version
 * @property {string} address
 * @property {string} health
 * @property {number} started_ms
 * @property {number} announced_ms
 * @property {Record<string, unknown>} stats
 *
 * @typedef {object} Setting
 * @property {string} group
 * @property {string} name
 * @property {string} variable
 * @property {string} description
 * @property {boolean} differs
 * @property {{ value: string, origin: string, instances: string[] }[]} values
 *
 * @typedef {object} CellRow
 * @property {number} number
 * @property {string} state
 * @property {string} address
 * @property {boolean} up
 * @property {string} [reason] why it is not up; the rest is not known then.
 * @property {number} [nodes]
 * @property {number} [slots]
 * @property {number} [used]
 * @property {number} [sessions]
 * @property {number} [rooms]
 *
 * @typedef {Document & List<InstanceRow> & { settings: Setting[], cells: CellRow[] }} InstancesDocument
 * @typedef {Document & List<NodeRow> & { counts: Record<string, number> }} NodesDocument
 * @typedef {Document & List<JobRow> & { counts: Record<string, number>, oldest_ms?: number, gap_ms?: number,
 *   errors: Record<string, number> }} JobsDocument
 * @typedef {Document & List<SessionRow> & { partial?: boolean }} SessionsDocument
 * @typedef {Document & List<RoomRow> & { partial?: boolean }} RoomsDocument
 */

/**
 * @template Row
 * @typedef {object} List
 * @property {Readonly<Record<string, Row>>} rows
 * @property {readonly string[]} order
 * @property {number} total
 * @property {number} [offset]
 * @property {number} [limit]
 */

/** @typedef {{ kind: "node" | "job" | "session" | "room", id: string, label: string }} Match */

export {};
