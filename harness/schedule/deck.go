package schedule

import (
	"math/rand/v2"
	"slices"
)

// deck deals network shapes without putting them back: every combination of
// kind and family comes up once before any comes up again. The first shape
// listed is dealt first, so that a run starts with what was reported.
type deck struct {
	rng   *rand.Rand
	all   []Network
	dealt []Network
}

func newDeck(p Plan) *deck {
	d := &deck{rng: rand.New(rand.NewPCG(p.Seed, streamNetworks))}
	for _, k := range p.Kinds {
		for _, f := range p.Families {
			d.all = append(d.all, Network{Kind: k, Family: f})
		}
	}
	return d
}

// network returns the i-th shape.
func (d *deck) network(i int) Network {
	for len(d.dealt) <= i {
		d.deal()
	}
	return d.dealt[i]
}

func (d *deck) deal() {
	round := slices.Clone(d.all)
	d.rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
	for i := range round {
		round[i].Gateway = d.rng.IntN(2) == 0
	}
	if len(d.dealt) == 0 {
		first := slices.IndexFunc(round, func(n Network) bool { return n.Kind == d.all[0].Kind && n.Family == d.all[0].Family })
		round[0], round[first] = round[first], round[0]
		round[0].Gateway = false
	}
	d.dealt = append(d.dealt, round...)
}
