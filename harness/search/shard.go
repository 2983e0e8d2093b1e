package search

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// Shard is a range of seeds that one machine plays, both ends included.
type Shard struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// String is the range as the command line has it, and the name of the shard.
func (s Shard) String() string { return fmt.Sprintf("%d-%d", s.First, s.Last) }

// Seeds is how many there are.
func (s Shard) Seeds() uint64 { return s.Last - s.First + 1 }

// ParseShard reads "A-B" or a single seed.
func ParseShard(text string) (Shard, error) {
	from, to, isRange := strings.Cut(text, "-")
	first, err := strconv.ParseUint(from, 10, 64)
	last := first
	if err == nil && isRange {
		last, err = strconv.ParseUint(to, 10, 64)
	}
	if err != nil || last < first {
		return Shard{}, fmt.Errorf("%q is not a range of seeds", text)
	}
	return Shard{First: first, Last: last}, nil
}

// Split cuts a range into n shards, of which none has more than one seed more
// than another. There are fewer if there are fewer seeds.
func (s Shard) Split(n int) []Shard {
	count := min(uint64(n), s.Seeds())
	shards := make([]Shard, 0, count)
	first := s.First
	for i := range count {
		size := s.Seeds() / count
		if i < s.Seeds()%count {
			size++
		}
		shards = append(shards, Shard{First: first, Last: first + size - 1})
		first += size
	}
	return shards
}

// shardVersion is the version of what EncodeShard writes. Others are refused.
const shardVersion = 2

// ShardResult is what a shard found, small enough to be handed over through an
// API: without what a replay of its failures shows again.
type ShardResult struct {
	Version int    `json:"version"`
	Shard   Shard  `json:"shard"`
	Commit  string `json:"commit"` // of the program that played it
	Totals  Totals `json:"totals"`
	// Shrunk are failures made small, by seed.
	Shrunk map[uint64]schedule.Simulation `json:"shrunk,omitempty"`
	// Omitted is how many failures had no room, those of the highest seeds.
	Omitted int           `json:"omitted,omitempty"`
	Took    time.Duration `json:"tookNs"`
}

// EncodeShard compresses a result into at most max bytes. Failures that do not
// fit are left out and counted: that the shard is Invalid stays in its counts.
// Troubles stay, without the traces if need be.
func EncodeShard(r ShardResult, max int) ([]byte, error) {
	r.Version = shardVersion
	r.Totals.Failures = withoutTraces(r.Totals.Failures)
	for {
		data, err := packed(r)
		if err != nil || len(data) <= max {
			return data, err
		}
		switch kept := r.Totals.Failures; {
		case len(r.Shrunk) > 0:
			r.Shrunk = nil // they can be shrunk again
		case len(kept) > 0:
			r.Totals.Failures = kept[:len(kept)/2]
			r.Omitted += len(kept) - len(kept)/2
		case r.makesTroublesBrief():
		default:
			return nil, fmt.Errorf("packing shard %s: %d bytes without any failure, %d are the most", r.Shard, len(data), max)
		}
	}
}

// makesTroublesBrief tells whether that made any of them shorter.
func (r *ShardResult) makesTroublesBrief() bool {
	isShorter := false
	troubles := slices.Clone(r.Totals.Troubles)
	for i, t := range troubles {
		isShorter = isShorter || len(t.Once)+len(t.Again) > 0 || t.Simulation != nil
		troubles[i] = t.brief()
	}
	r.Totals.Troubles = troubles
	return isShorter
}

// withoutTraces leaves out what replaying the simulation tells again.
func withoutTraces(failures []Played) []Played {
	var slim []Played
	for _, f := range failures {
		f.Trace, f.Story, f.Widths = nil, nil, nil
		slim = append(slim, f)
	}
	return slim
}

func packed(r ShardResult) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(r); err != nil {
		return nil, fmt.Errorf("packing shard %s: %w", r.Shard, err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("packing shard %s: %w", r.Shard, err)
	}
	return b.Bytes(), nil
}

// unpackedMax bounds what a result may unpack to: it came over a network.
const unpackedMax = 64 << 20

// DecodeShard reads what EncodeShard wrote for that shard, and refuses whatever
// is not a whole answer to it.
func DecodeShard(data []byte, want Shard) (ShardResult, error) {
	var r ShardResult
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return r, fmt.Errorf("unpacking shard %s: %w", want, err)
	}
	if err := json.NewDecoder(io.LimitReader(z, unpackedMax)).Decode(&r); err != nil {
		return r, fmt.Errorf("unpacking shard %s: %w", want, err)
	}
	switch {
	case r.Version != shardVersion:
		return r, fmt.Errorf("unpacking shard %s: format %d, known is %d: use the image of this release", want, r.Version, shardVersion)
	case r.Shard != want:
		return r, fmt.Errorf("unpacking shard %s: it is of shard %s", want, r.Shard)
	case !r.answers():
		return r, fmt.Errorf("unpacking shard %s: it has %d seeds", want, r.Totals.Seeds)
	}
	return r, nil
}

// answers tells whether the shard was played to its end, or as far as its first
// violation or trouble.
func (r ShardResult) answers() bool {
	played := uint64(r.Totals.Seeds)
	hasReason := r.Totals.Verdicts[check.Invalid] > 0 || len(r.Totals.Troubles) > 0
	return played == r.Shard.Seeds() || played < r.Shard.Seeds() && hasReason
}
