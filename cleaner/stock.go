package cleaner

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

// poolKey names one family of one network.
type poolKey struct {
	ref    danm.NetworkRef
	family danm.Family
}

// poolStock is what was counted of one family of one network.
type poolStock struct {
	usage                            ipam.Usage
	endpoints, suspects, held, alone int
}

// stock exports the latest count of every network. It is replaced as a whole,
// so a network that was deleted has no series after the next sweep, and a
// replica that lost the Lease has none at all.
type stock struct {
	counted atomic.Pointer[map[poolKey]*poolStock]
	gauges  []stockGauge
}

type stockGauge struct {
	desc  *prometheus.Desc
	value func(*poolStock) int
}

func newStock() *stock {
	s := &stock{}
	for _, g := range []struct {
		name, help string
		value      func(*poolStock) int
	}{
		{"network_addresses", "Addresses of the network that pods may own.", func(p *poolStock) int { return p.usage.Total }},
		{"network_addresses_allocated", "Addresses whose bit is set.", func(p *poolStock) int { return p.usage.Allocated }},
		{"network_addresses_free", "Addresses that DANM can still hand out by itself.", func(p *poolStock) int { return p.usage.Free }},
		{"network_addresses_unclaimed", "Addresses whose bit is set although no endpoint claims them.", func(p *poolStock) int { return p.alone }},
		{"network_endpoints", "Endpoints with an address of the network.", func(p *poolStock) int { return p.endpoints }},
		{"network_endpoints_suspect", "Endpoints whose owner was not seen.", func(p *poolStock) int { return p.suspects }},
		{"network_endpoints_held", "Endpoints that are kept although their owner is gone or unknown.", func(p *poolStock) int { return p.held }},
	} {
		desc := prometheus.NewDesc(prometheus.BuildFQName(metricsNamespace, "", g.name), g.help,
			[]string{"kind", "network_namespace", "network", "family"}, nil)
		s.gauges = append(s.gauges, stockGauge{desc, g.value})
	}
	return s
}

func (s *stock) replace(counted map[poolKey]*poolStock) { s.counted.Store(&counted) }

// Describe implements prometheus.Collector.
func (s *stock) Describe(to chan<- *prometheus.Desc) {
	for _, g := range s.gauges {
		to <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (s *stock) Collect(to chan<- prometheus.Metric) {
	counted := s.counted.Load()
	if counted == nil {
		return
	}
	for key, p := range *counted {
		for _, g := range s.gauges {
			to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value(p)),
				string(key.ref.Kind), key.ref.Namespace, key.ref.Name, strconv.Itoa(int(key.family)))
		}
	}
}

// countStock counts addresses and endpoints of every network in the caches.
// Endpoints of networks that do not exist are not counted: their names are no
// set that anything bounds.
func (c *controller) countStock() {
	counted := map[poolKey]*poolStock{}
	for _, informer := range c.caches.networks {
		for _, object := range informer.store.List() {
			if n, ok := object.(*openNetwork); ok {
				c.countNetwork(counted, n)
			}
		}
	}
	suspects, held := c.state.suspects(), c.state.held()
	for ep := range c.caches.everyEndpoint() {
		addrs, _ := ep.Addresses()
		for _, a := range addrs {
			p, ok := counted[poolKey{ep.Network(), danm.FamilyOf(a)}]
			if !ok {
				continue
			}
			p.endpoints++
			p.suspects += oneIf(suspects[ep.UID])
			p.held += oneIf(held[ep.UID])
		}
	}
	c.metrics.stock.replace(counted)
}

func (c *controller) countNetwork(counted map[poolKey]*poolStock, n *openNetwork) {
	ref := n.Ref()
	for family, pool := range n.pools {
		counted[poolKey{ref, family}] = &poolStock{usage: pool.Usage()}
	}
	for b := range c.orphans.since(ref) {
		if p, ok := counted[poolKey{ref, b.family}]; ok {
			p.alone++
		}
	}
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}
