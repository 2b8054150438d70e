//go:build unix

package shard

import (
	"errors"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Where a disk is full, what was written before stays, and the reason is noted once there is room for it.
func TestAFullDiskCostsOneLine(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, header(4, 0, 1))
	require.NoError(t, err)
	require.NoError(t, s.Put(2, []int{0, 10}))
	info, err := s.f.Stat()
	require.NoError(t, err)
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	signal.Ignore(syscall.SIGXFSZ)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE,
		&syscall.Rlimit{Cur: uint64(info.Size()) + 200, Max: was.Max}))
	err = s.Put(2, strings.Repeat("x", 1000))
	require.NoError(t, s.Fail(errors.New("file too large"), 1, "n1", time.Time{}))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	require.ErrorContains(t, err, "file too large")
	set, err := ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, "shard 0 has 2 of 4 units and failed on n1: file too large", set.States()[0].String())
	s, err = Open(dir, header(4, 0, 1))
	require.NoError(t, err)
	work(t, s, 2)
	all, err := merged(dir)
	require.NoError(t, err)
	require.Equal(t, []int{0, 10, 20, 30}, all)
}
