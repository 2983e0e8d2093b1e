package main

import (
	"crypto/rand"
	"encoding/binary"
	"strconv"
)

// seedHexDigits is how much of a commit hash makes the seed: what fits into a
// uint64. The least that Git abbreviates to is commitDigitsMin.
const (
	seedHexDigits   = 16
	commitDigitsMin = 7
)

// parseSeed reads a decimal number or, failing that, a hexadecimal commit hash.
// Empty draws a small seed, which is easier to type again.
func parseSeed(s string) (uint64, error) {
	if s == "" {
		return drawSeed(), nil
	}
	if seed, err := strconv.ParseUint(s, 10, 64); err == nil {
		return seed, nil
	}
	if len(s) >= commitDigitsMin {
		if seed, err := strconv.ParseUint(s[:min(len(s), seedHexDigits)], 16, 64); err == nil && isHex(s) {
			return seed, nil
		}
	}
	return 0, usagef("--seed %q: neither a number below 2^64 nor a commit hash: give, for example, --seed 42", s)
}

func isHex(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

// drawSeed is the one place where a run is not repeatable; the seed is printed.
func drawSeed() uint64 {
	var b [4]byte
	rand.Read(b[:]) // never fails, by its contract
	return uint64(binary.BigEndian.Uint32(b[:]))
}
