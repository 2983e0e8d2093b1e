package cleaner

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// RecordVersion is the schemaVersion of Record. Fields may be added within it.
const RecordVersion = 1

// RecordKind says what was released.
type RecordKind string

// Kinds of Record. The endpoint goes first and the address, that is its bit,
// second; an address without endpoint has only the second record.
const (
	EndpointReleased RecordKind = "EndpointReleased"
	AddressReleased  RecordKind = "AddressReleased"
)

// What proved that an address was nobody's.
const (
	byLineage = "lineage"
	bySweep   = "sweep"
)

// Record is one line of the release log: who held which address until when, and
// by what evidence it was released.
type Record struct {
	SchemaVersion int             `json:"schemaVersion"`
	Kind          RecordKind      `json:"kind"`
	Time          time.Time       `json:"time"` // when it was released
	Network       danm.NetworkRef `json:"network"`
	Addresses     []string        `json:"addresses"`
	Holder        *Holder         `json:"holder,omitempty"` // nil if nobody is known to have held it
	Evidence      RecordEvidence  `json:"evidence"`
}

// Holder is the endpoint that claimed the addresses, and the pod it belonged to.
type Holder struct {
	Namespace   string    `json:"namespace"`
	Endpoint    string    `json:"endpoint"`
	EndpointUID types.UID `json:"endpointUID"`
	Pod         string    `json:"pod"`
	PodUID      types.UID `json:"podUID"`
	Host        string    `json:"host"`
	Interface   string    `json:"interface"`
	Since       time.Time `json:"since"` // creation of the endpoint
}

// RecordEvidence is what the release was based on. Times are zero, and left
// out, where nothing was seen.
type RecordEvidence struct {
	Reason                  ownership.Reason `json:"reason,omitempty"` // of an endpoint's release
	By                      string           `json:"by,omitempty"`     // of an address's: lineage or sweep
	SuspectSince            time.Time        `json:"suspectSince,omitzero"`
	OwnerSeenAlive          time.Time        `json:"ownerSeenAlive,omitzero"`
	SetSince                time.Time        `json:"setSince,omitzero"`
	UnclaimedSince          time.Time        `json:"unclaimedSince,omitzero"`
	EndpointResourceVersion string           `json:"endpointResourceVersion,omitempty"`
	NetworkResourceVersion  string           `json:"networkResourceVersion,omitempty"`
}

func holderOf(ep *danm.Endpoint) *Holder {
	return &Holder{
		Namespace: ep.Namespace, Endpoint: ep.Name, EndpointUID: ep.UID,
		Pod: ep.Spec.Pod, PodUID: ep.Spec.PodUID, Host: ep.Spec.Host,
		Interface: ep.Spec.Interface.Name, Since: ep.CreationTimestamp.UTC(),
	}
}

// recordEndpoint notes the release of an endpoint. st is what was known of it
// before it was deleted.
func (c *controller) recordEndpoint(ep *danm.Endpoint, networkVersion string, reason ownership.Reason, st endpointState) {
	if !st.suspectSince.IsZero() {
		c.metrics.untilGone.Observe(c.clock.Since(st.suspectSince).Seconds())
	}
	addresses := []string{}
	addrs, _ := ep.Addresses()
	for _, a := range addrs {
		addresses = append(addresses, a.String())
	}
	c.record(Record{
		Kind: EndpointReleased, Network: ep.Network(), Addresses: addresses, Holder: holderOf(ep),
		Evidence: RecordEvidence{
			Reason: reason, SuspectSince: st.suspectSince, OwnerSeenAlive: st.owner.aliveAt,
			EndpointResourceVersion: ep.ResourceVersion, NetworkResourceVersion: networkVersion,
		},
	})
}

// recordClear notes that the bit of a deleted endpoint was cleared.
func (c *controller) recordClear(n *danm.Network, r clearRequest, setSince time.Time) {
	c.record(Record{
		Kind: AddressReleased, Network: n.Ref(), Addresses: []string{r.addr.String()}, Holder: holderOf(r.endpoint),
		Evidence: RecordEvidence{
			By: byLineage, OwnerSeenAlive: r.aliveAt, SetSince: setSince, NetworkResourceVersion: n.ResourceVersion,
		},
	})
}

// recordSweep notes that bits without endpoint were cleared.
func (c *controller) recordSweep(n *danm.Network, ps pools, cleared []bit, since map[bit]time.Time) {
	for _, b := range cleared {
		c.record(Record{
			Kind: AddressReleased, Network: n.Ref(), Addresses: []string{ps.addr(b).String()},
			Evidence: RecordEvidence{By: bySweep, UnclaimedSince: since[b], NetworkResourceVersion: n.ResourceVersion},
		})
	}
}

// record writes one line. The release has happened by now, so a full disk is
// counted and logged but stops nothing.
func (c *controller) record(r Record) {
	if c.cfg.ReleaseLog == nil {
		return
	}
	r.SchemaVersion, r.Time = RecordVersion, c.clock.Now()
	for _, t := range []*time.Time{
		&r.Time, &r.Evidence.SuspectSince, &r.Evidence.OwnerSeenAlive, &r.Evidence.SetSince, &r.Evidence.UnclaimedSince,
	} {
		*t = t.UTC()
	}
	line, err := json.Marshal(r)
	if err == nil {
		c.recording.Lock()
		_, err = c.cfg.ReleaseLog.Write(append(line, '\n'))
		c.recording.Unlock()
	}
	if err != nil {
		c.metrics.unrecorded.Inc()
		c.log.Error(err, "cannot write release record", "kind", r.Kind, "network", r.Network.String(), "addresses", r.Addresses)
	}
}
