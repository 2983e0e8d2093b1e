package main

import "testing"

func TestMemoryForWorkers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limit   uint64
		workers int
		want    bool
	}{
		{"nobody knows the limit", 0, 64, true},
		{"enough for all", 2 * workerNeeds, 2, true},
		{"too little for one of them", 2*workerNeeds - 1, 2, false},
	} {
		f := examineMemoryLimit(tt.limit, tt.workers)
		if f.OK != tt.want || f.OK != (f.Cure == "") || !f.Optional {
			t.Errorf("%s: %+v", tt.name, f)
		}
	}
}
