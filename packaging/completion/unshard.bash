# SPDX-License-Identifier: Apache-2.0
# bash completion for unshard(1).  Commands, flags, options and formats come
# from --help, tensor names from the checkpoint, so nothing is listed twice.

_unshard_commands() {
	unshard --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'
}

_unshard_flags() { # COMMAND
	unshard "$1" --help 2>/dev/null | grep -oE '^ +(-[a-z], )?--[a-z-]+' | tr -d ,
	echo -o
}

# After -o: NAME, NAME= or NAME=VALUE, of what follows the last comma.
_unshard_options() { # COMMAND WORD
	local done=${2%"${2##*,}"}
	case ${2##*,} in
	format=*)
		unshard --formats 2>/dev/null | sed "s| .*||; s|^|${done}format=|"
		return ;;
	engine=*)
		printf '%s\n' "${done}engine="{auto,plain,uring}
		return ;;
	*=*)
		compgen -P "${2%"${2##*=}"}" -f -- "${2##*=}"
		return ;;
	esac
	unshard "$1" --help=all 2>/dev/null |
		sed -n "/^-o NAME/,\$s|^  \([a-z][a-z-]*=\{0,1\}\).*|$done\1|p"
}

# What --FLAG takes: the words that its help lists after a colon, if it does.
_unshard_values() { # COMMAND --FLAG
	COLUMNS=100 unshard "$1" --help 2>/dev/null |
		sed -n "s/^  *$2 [A-Z]*  .*: \([a-z, ]*\)\.\$/\1/p" | sed 's/,\| or / /g'
}

_unshard() {
	local cur=${COMP_WORDS[COMP_CWORD]} at=$COMP_CWORD before= word=
	local command=${COMP_WORDS[1]} ckpt=
	COMPREPLY=()

	# bash cuts words at each "=", and completes what follows the last.
	while [[ $at -gt 2 && (${COMP_WORDS[at]} == = || ${COMP_WORDS[at - 1]} == =) ]]; do
		at=$((at - 1))
		before=${COMP_WORDS[at]}$before
	done
	word=$before$cur
	[ "$cur" != = ] || before=$word cur=

	if [ "$COMP_CWORD" = 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_unshard_commands) \
			--help --version --formats" -- "$cur")
		return
	fi
	if [ "${COMP_WORDS[at - 1]}" = -o ]; then
		compopt -o nospace
		mapfile -t COMPREPLY < <(compgen -W \
			"$(_unshard_options "$command" "$word")" -- "$word")
		COMPREPLY=("${COMPREPLY[@]#"$before"}")
		return
	fi
	if [[ ${COMP_WORDS[at - 1]} == --* ]]; then
		mapfile -t COMPREPLY < <(compgen -W \
			"$(_unshard_values "$command" "${COMP_WORDS[at - 1]}")" -- "$cur")
		[ ${#COMPREPLY[@]} = 0 ] || return
	fi
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W \
			"$(_unshard_flags "$command")" -- "$cur")
		return
	fi
	# The word after a checkpoint is a tensor for these.
	[ "$COMP_CWORD" -gt 2 ] && ckpt=${COMP_WORDS[COMP_CWORD - 1]}
	case $command in
	ls | inspect | plan | cat | heal)
		if [ -e "$ckpt" ]; then
			mapfile -t COMPREPLY < <(unshard ls --json "$ckpt" \
				2>/dev/null | grep -oE '"name": ?"[^"\\]+"' |
				sed 's/.*: \{0,1\}"//; s/"$//' |
				grep -F -- "$cur" | grep "^${cur//./\\.}")
			return
		fi ;;
	esac
	compopt -o filenames
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
complete -F _unshard unshard
