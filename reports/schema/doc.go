// Package schema holds the JSON schemas of what package reports writes, for
// readers in other languages. It checks nothing at run time: a test holds every
// written file against them.
package schema

import _ "embed" // for the schemas

// The schemas (JSON Schema, draft 2020-12).
var (
	//go:embed run.schema.json
	Run []byte // of run.json
	//go:embed verdicts.schema.json
	Verdicts []byte // of verdicts.json
	//go:embed compare.schema.json
	Compare []byte // of compare.json
)
