// Package fleet has a cluster of others run one program many times, as an
// Indexed Job in a namespace of its own, and gathers what each run stored through
// the API. It does not know what the program computes: a shard is a name, a
// result is bytes.
package fleet
