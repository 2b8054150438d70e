package main

import (
	"strings"

	"github.com/vprof/vprof/models"
)

// joinCheckpointing has "--checkpointing reentrant" mean "--checkpointing=reentrant":
// the flag may stand alone, so a word after it would be an argument.
func joinCheckpointing(args []string) []string {
	const flag = "--checkpointing"
	var out []string
	for i := 0; i < len(args); i++ {
		if args[i] == flag && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			if _, err := models.FieldNamed("checkpointing").Parse(args[i+1]); err == nil ||
				strings.Contains(args[i+1], "=") {
				out = append(out, flag+"="+args[i+1])
				i++
				continue
			}
		}
		out = append(out, args[i])
	}
	return out
}
