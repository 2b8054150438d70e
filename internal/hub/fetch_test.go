package hub

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// serve starts a server and returns a client of it whose cache is a folder of the test.
func serve(t *testing.T, answer http.HandlerFunc) *Client {
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	return &Client{Endpoint: s.URL, Token: "secret"}
}

// A fetched file lies where huggingface_hub looks for it, and is found there.
func TestFetchedFilesAreInTheCache(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/org/name/resolve/main/config.json", r.URL.Path)
		require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		w.Header().Set("X-Repo-Commit", commit)
		_, _ = w.Write([]byte("{}"))
	})
	path, err := c.Fetch("org/name", "", "config.json")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(cacheFolder(), "models--org--name", "snapshots", commit, "config.json"), path)
	require.Equal(t, path, CachedFile("org/name", "", "config.json"))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "{}", string(data))
}

// The token goes to the endpoint's host alone: a redirect to another does not get it, with a subdomain or another port.
func TestTheTokenStaysWithItsHost(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Empty(t, r.Header.Get("Authorization"))
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(other.Close)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Repo-Commit", commit)
		http.Redirect(w, r, other.URL+"/file", http.StatusFound)
	})
	path, err := c.Fetch("org/name", "main", "config.json")
	require.NoError(t, err)
	require.Contains(t, path, commit) // of the redirect
}

// status answers with a status alone.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// Whatever the hub answers, nothing is written outside the cache, and a file is whole or absent.
func TestBadAnswersLeaveNothing(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"is larger than the limit of 4 MiB": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(strings.Repeat("x", maxBytes+1)))
		},
		"gated, private or misspelled":      status(http.StatusForbidden),
		"no model org/name":                 status(http.StatusNotFound),
		"the Hugging Face Hub answered 503": status(http.StatusServiceUnavailable),
		"the server redirected more than five times": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		},
	} {
		c := serve(t, answer)
		_, err := c.Fetch("org/name", "", "config.json")
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "secret")
		require.Empty(t, CachedFile("org/name", "", "config.json"))
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Repo-Commit", "../../../../outside")
		_, _ = w.Write([]byte("{}"))
	})
	path, err := c.Fetch("org/name", "", "config.json")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(path, cacheFolder()))
	_, err = c.Fetch("org/name", "../../../outside", "config.json")
	require.Error(t, err)
}

// The network is forbidden as huggingface_hub understands it.
func TestOffline(t *testing.T) {
	for value, offline := range map[string]bool{"1": true, "true": true, "YES": true, "0": false, "": false} {
		t.Setenv("HF_HUB_OFFLINE", value)
		require.Equal(t, offline, FromEnvironment(nil) == nil, value)
	}
}
