package cli

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeapHasHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("the kernel has no large pages")
	}
	useHugePages()
	maps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`VmFlags:.* hg\b`), string(maps))
}
