package trainers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCodeOfRepositoriesIsNoted(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.json")
	const own, plain = `{"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}`, `{"auto_map": {}}`
	for _, row := range []struct {
		keys, config string
		noted        bool
	}{
		{"trust_remote_code: true\n", own, true},
		{"trust_remote_code: true\n", plain, false},
		{"trust_remote_code: true\n", "[", false},
		{"trust_remote_code: false\n", own, false},
		{"trust_remote_code: []\n", own, false},
		{"", own, false},
	} {
		require.NoError(t, os.WriteFile(config, []byte(row.config), 0o600))
		c, err := one(t, "c.yaml", "base_model: a/b\nmicro_batch_size: 1\nsequence_len: 512\n"+row.keys)
		require.NoError(t, err)
		before := len(c.Notes)
		c.CheckRemoteCode(config)
		if !row.noted {
			require.Len(t, c.Notes, before, row)
			continue
		}
		require.Contains(t, c.Notes,
			"c.yaml:4: trust_remote_code: the model's config.json names code of its repository (auto_map), which "+
				"the trainer runs; planned is transformers' own class, and the two may differ")
	}
	c, err := one(t, "c.yaml", "base_model: a/b\nmicro_batch_size: 1\nsequence_len: 512\ntrust_remote_code: true\n")
	require.NoError(t, err)
	before := len(c.Notes)
	c.CheckRemoteCode(filepath.Join(t.TempDir(), "none"))
	require.Len(t, c.Notes, before)
}
