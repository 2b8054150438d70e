package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Folder makes a folder for temporary files, whose name begins with a prefix and the number of this process. It removes
// the folders of that prefix whose processes were killed.
func Folder(prefix string) (string, error) {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // the error is about the pattern
	for _, dir := range found {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		pid, err := strconv.Atoi(number)
		if err == nil && pid > 0 && gone(pid) {
			_ = os.RemoveAll(dir) // what cannot be removed is another user's
		}
	}
	return os.MkdirTemp("", fmt.Sprintf("%s%d-", prefix, os.Getpid()))
}
