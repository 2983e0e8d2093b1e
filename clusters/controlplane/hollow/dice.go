package hollow

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// dice draws everything that is random on a node from its seed. The order in
// which pods ask for it is that of the real world, so a seed repeats the kind
// of a run, not its every step.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// newDice mixes the name in, so that nodes with one seed differ: their
// container IDs and endpoint names must.
func newDice(seed uint64, name string) *dice {
	h := fnv.New64a()
	h.Write([]byte(name))
	return &dice{rng: rand.New(rand.NewPCG(seed, h.Sum64()))}
}

func (d *dice) between(least, most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return least + time.Duration(d.rng.Int64N(int64(most-least)+1))
}

// stepDelay is the time between two steps of the CNI plugin: a few
// milliseconds, and now and then tens, as on a busy node.
func (d *dice) stepDelay() time.Duration {
	if d.between(1, slowStepOneIn) == 1 {
		return d.between(slowStepMin, slowStepMax)
	}
	return d.between(stepMin, stepMax)
}

// killDelay is how long the containers of a force-deleted pod live on: a third
// of the time they end at once, else they use some of the grace period.
func (d *dice) killDelay() time.Duration {
	if d.between(0, 2) == 0 {
		return d.between(0, stepMax)
	}
	return d.between(0, killMax)
}

func (d *dice) bytes(n int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, d.rng.Uint64())
	}
	return b[:n]
}

// containerID looks like one of containerd.
func (d *dice) containerID() string { return hex.EncodeToString(d.bytes(32)) }

// uuid returns a version 4 UUID.
func (d *dice) uuid() string {
	b := d.bytes(16)
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	s := hex.EncodeToString(b)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// podAddress is for pods that get no address from DANM; it is of 100.64.0.0/10,
// which no network under test should use.
func (d *dice) podAddress() netip.Addr {
	b := d.bytes(3)
	return netip.AddrFrom4([4]byte{100, 64 | b[0]&0x3f, b[1], b[2]})
}
