package danmcni

import "github.com/danm-chaos/danm-chaos/harness/history"

// Attached returns what a history tells of interfaces that Add made.
func Attached(made []Interface) []history.AttachedInterface {
	var all []history.AttachedInterface
	for _, i := range made {
		attached := history.AttachedInterface{
			Name: i.Name, Endpoint: i.Endpoint, EndpointUID: string(i.EndpointUID),
			NetworkKind: string(i.Network.Kind), Network: i.Network.Name,
		}
		for _, addr := range i.Addresses {
			attached.Addresses = append(attached.Addresses, addr.String())
		}
		all = append(all, attached)
	}
	return all
}
