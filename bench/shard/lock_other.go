//go:build !linux

package shard

import "os"

// lock locks nothing: fleets run on Linux; elsewhere shards are started manually.
func lock(*os.File) error { return nil }

// isLocked returns false, since this system has no locks.
func isLocked(*os.File) bool { return false }
