//go:build !unix

package shard

import "os"

// lock does nothing: files that are open elsewhere cannot be renamed here anyway.
func lock(*os.File) error { return nil }
