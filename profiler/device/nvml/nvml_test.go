package nvml

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// 100 MiB, of which the driver keeps 10; contexts hold 60.
func TestWhatTheDriverKeepsIsHeldByNobody(t *testing.T) {
	const mib = 1 << 20
	require.EqualValues(t, 60*mib,
		Memory{Total: 100 * mib, Reserved: 10 * mib, Used: 60 * mib}.UsedByProcesses(90*mib))
	require.EqualValues(t, 60*mib, Memory{Total: 100 * mib, Used: 70 * mib}.UsedByProcesses(90*mib),
		"an old driver")
	require.EqualValues(t, 0, Memory{Total: 100 * mib, Used: 5 * mib}.UsedByProcesses(90*mib))
	require.EqualValues(t, 5*mib, Memory{Total: 100 * mib, Used: 5 * mib}.UsedByProcesses(110*mib))
}
