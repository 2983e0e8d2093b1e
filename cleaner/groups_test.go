package cleaner

import (
	"testing"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

func TestChoosingTheGroupToWorkOn(t *testing.T) {
	const newer, older = danm.GroupDanmIO, danm.GroupDanmK8sIO
	for _, tt := range []struct {
		name            string
		wanted, current danm.Group
		newer, older    groupUse
		group           danm.Group
		refused         bool
	}{
		{"only one is served", "", "", notServed, holdsNothing, older, false},
		{"none is served", "", "", notServed, notServed, "", true},
		{"the wanted one is not served, the other is", newer, "", notServed, holdsEndpoints, "", true},
		{"the wanted one holds nothing, the other all", newer, "", holdsNothing, holdsEndpoints, newer, false},
		{"endpoints outweigh networks", "", "", holdsNetworks, holdsEndpoints, older, false},
		{"the last endpoint is released, its network still has the bit", "", "", holdsNothing, holdsNetworks, older, false},
		{"the last endpoint is released, the other group has networks as well", "", older, holdsNetworks, holdsNetworks, older, false},
		{"nobody knows which networks are meant", "", "", holdsNetworks, holdsNetworks, "", true},
		{"both are being used", "", older, holdsEndpoints, holdsEndpoints, older, false},
		{"a new cluster", "", "", holdsNothing, holdsNothing, newer, false},
		{"the other group takes over", "", newer, holdsNetworks, holdsEndpoints, older, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			uses := map[danm.Group]groupUse{newer: tt.newer, older: tt.older}
			got, err := choose(tt.wanted, tt.current, uses)
			if got != tt.group || (err != nil) != tt.refused {
				t.Errorf("got %q and %v, want %q, refused %v", got, err, tt.group, tt.refused)
			}
		})
	}
}

func TestNothingIsReleasedWhileTheOtherGroupHoldsEndpoints(t *testing.T) {
	const mine, other = danm.GroupDanmIO, danm.GroupDanmK8sIO
	for _, tt := range []struct {
		name        string
		mine, other groupUse
		isFrozen    bool
	}{
		{"the other is not served", holdsEndpoints, notServed, false},
		{"the other is served and empty", holdsEndpoints, holdsNothing, false},
		{"the other has networks that nobody uses", holdsEndpoints, holdsNetworks, false},
		{"both hold endpoints", holdsEndpoints, holdsEndpoints, true},
		{"bitmaps were copied, endpoints not yet", holdsNetworks, holdsEndpoints, true},
		{"nothing was copied yet", holdsNothing, holdsEndpoints, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if why := migration(mine, map[danm.Group]groupUse{mine: tt.mine, other: tt.other}); (why != "") != tt.isFrozen {
				t.Errorf("frozen because %q, want frozen %v", why, tt.isFrozen)
			}
		})
	}
}
