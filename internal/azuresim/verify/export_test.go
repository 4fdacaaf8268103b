package verify

var (
	Played = played
	Alive  = alive
)
