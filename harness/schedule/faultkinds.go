package schedule

// Describe says in one clause what a fault of the simulator does.
func (k FaultKind) Describe() string { return descriptions[k] }

var descriptions = map[FaultKind]string{
	ReplyLost: "a call takes effect, but its caller gets a broken connection", TimeoutBefore: "a call times out without effect",
	Conflict: "writes are refused with a conflict, several in a row", TooMany: "calls are refused as too many", ServerError: "calls fail with an internal error",
	CrashAfter: "a call takes effect, and its caller dies before it knows", SlowCall: "a call waits in front of the API server, and others overtake it",
	LateCall: "a call takes effect long after it was made, whether or not its caller still waits",
	WatchCut: "a watch ends", WatchExpired: "a watch ends, and what it had still to say is compacted away",
	WatchStall: "a watch says nothing for a while", Coalesce: "a watch stalls and then expires, so that a list shows only the sum",
	StaleRestart: "the cleaner starts again, and its caches show the past for a while",
	PauseCleaner: "the cleaner stands still, maybe for longer than its Lease, and its writes under way take effect after that",
	ClockJump:    "the cleaner's clock is set forward", PartialList: "a list of pods for the cleaner's cache lacks half of them",
	RebootNode: "a node goes down and comes up again with the same pods", PartitionNode: "a node does not reach the API for a while, and its pods run on",
	RemoveNode: "a node is removed for good with all that runs there, and a fresh one comes", OutOfService: "a dead node is declared out of service",
	DelLost: "a CNI DEL does not happen", DelTwice: "a CNI DEL happens twice", DelLate: "a CNI DEL begins late",
	DelStalled: "a CNI DEL waits between reading and writing", AddCrashed: "a CNI ADD dies between bit and endpoint",
	AddStalled: "a CNI ADD waits between bit and endpoint", EvictPod: "a pod fails, and its object stays", DeletePod: "a living pod is force deleted",
	ScaleDown: "there is one replica less, for a while or for good", DeleteNamespace: "the namespace is deleted with everything in it, and made anew",
	EditNetwork: "somebody edits the network", RenewNetwork: "somebody deletes the network and makes it anew with its bits",
	BothGroups:     "the other API group holds an endpoint for a while",
	MoveEndpoints:  "all endpoints are copied into the other API group, and then the cleaner sees none in its own for a while",
	ReserveAddress: "a ReservedIP sets an address aside, and the next time another one instead",
	RenewMirror:    "the mirror of a static pod is deleted and made anew, while that runs on",
	HidePods:       "nothing that the cleaner reads shows any pod for a while",
}
