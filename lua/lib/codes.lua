-- Numbers that Lua and Python share; services/pool_service/codes.py mirrors them.

-- Health of a node. 1 to 4 are NodeHealth of the contract.
local READY = 1
local OFFLINE = 4
local LEAVING = 5 -- being taken out of its pools
local OUT = 6 -- in no pool; the node must register again

-- Why a healthy node gets no jobs.
local DRAINED = 1 -- an operator has drained it
local MOVING = 2 -- it belongs into another cell

-- FinalizeReason of the contract.
local TIMEOUT = 2
local MAX_DURATION = 3
local MAX_LENGTH = 4
local INTERRUPTED = 6

-- PlacementPath of the contract.
local BY_PREFERRED = 1
local BY_TIMEOUT_BINDING = 2
local BY_MAX_DURATION_BINDING = 3
local BY_POOL = 4
local BY_FALLBACK = 5
local BY_NAME = 6

-- BindingOutcome of the contract.
local BINDING_NONE = 1
local BINDING_HIT = 2
local BINDING_UNAVAILABLE = 3
local BINDING_FULL = 4
local BINDING_EXCLUDED = 5
